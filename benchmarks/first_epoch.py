"""How trainings of the statistics table begin in the arithmetic of a device: fp32 on a CPU, bf16 on a GPU.

Records of trainings on a GPU have the loss of their first epoch. The same seeds on a CPU see the same images, augmented
alike, in the same order, from the same weights: what differs is the arithmetic, and chance, which small differences
grow into.

python benchmarks/first_epoch.py                                                        a few steps
python benchmarks/first_epoch.py --seeds 0 1 2 --steps 781 --threads 1 --json FILE      an epoch, 20 minutes a seed

Seeds that the file has already are not trained again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from measuring import write_record

from otprune import models
from otprune.experiments import paper
from otprune.experiments.pipeline import open_data
from otprune.experiments.reproduce.needed import trained
from otprune.models.building import build_model
from otprune.training.data import AnyDataset
from otprune.training.data.seeds import seeded
from otprune.training.run import Run


def main() -> None:
    """Trains one seed after the other, prints each, and adds it to the record where one is asked for."""
    options = parse_options()
    for name in ("steps", "threads"):
        if (number := getattr(options, name)) is not None and number < 1:
            raise SystemExit(f"--{name} must be at least 1, not {number}")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: use --device cpu")
    if options.threads:
        torch.set_num_threads(options.threads)
    data, results = open_data(options.data), recorded(options)
    for seed in options.seeds:
        if str(seed) not in results:
            results[str(seed)] = measured(data, options, seed)
            write_record(
                "first_epoch", argparse.Namespace(**asked(options), json=options.json, seed=list(results)), results
            )
        print(f"seed {seed}: loss {results[str(seed)]['loss']:.4f}, accuracy {results[str(seed)]['accuracy']:.4f}")


def parse_options() -> argparse.Namespace:
    """The command line."""
    table = paper.table("statistics")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("cifar10", "cifar100"), default="cifar10")
    parser.add_argument("--model", choices=models.names(), default=table["model"])
    parser.add_argument("--lam", type=float, default=table["lam"], help="of the L1 penalty, by default %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training for each, by default of 0")
    parser.add_argument("--steps", type=int, default=10, help="of the first epoch; an epoch of CIFAR has 781")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--json", type=Path, help="where to write the record, and to find earlier seeds")
    return parser.parse_args()


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """What all seeds of a record have in common."""
    return {name: value for name, value in vars(options).items() if name not in ("seeds", "json")}


def recorded(options: argparse.Namespace) -> dict[str, Any]:
    """The seeds of an earlier call that asked for the same."""
    if options.json is None or not options.json.exists():
        return {}
    found = json.loads(options.json.read_text(encoding="utf-8"))
    if found["configuration"] != asked(options):
        raise SystemExit(f"{options.json}: was measured with {found['configuration']}; give --json another file")
    return dict(found["results"])


def measured(data: AnyDataset, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """The mean loss and the accuracy on the images of the first steps, as they were when each step was made."""
    training = trained(options.data, options.model, options.lam, seed).training
    with seeded(seed):
        model = build_model(options.model, num_classes=len(data.classes)).to(options.device)
    run = Run(model, data, training)
    run.begin_epoch()
    for _ in range(min(options.steps, run.steps)):
        run.advance()
    so_far = run.so_far()
    return {"loss": so_far.loss, "accuracy": so_far.accuracy}


if __name__ == "__main__":
    main()
