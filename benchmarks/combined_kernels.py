"""The many small kernels of a training step on a GPU: launched as one where none needs another, and each by itself.

Each network is trained for epochs of made-up images, in turn as otprune trains it and with every kernel launched by
itself. A network is named, or pruned as the recorded run of that name under results/ was.

python benchmarks/combined_kernels.py --json results/combined_kernels.json
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from measuring import in_turn, ratio_of, write_record
from measuring.made_runs import made_images, made_model, timed_step
from measuring.restored import restored
from torch import nn

from otprune.experiments.reproduce.records import Records
from otprune.training import compiling
from otprune.training.data.images import Dataset

RESULTS = Path(__file__).parents[1] / "results"
NETWORKS = ("vgg14", "cifar10/vgg14/lam2e-4-seed0", "densenet121")


def main() -> None:
    """Measures, prints a line for each network, and writes the record where one is asked for."""
    options = parse_options()
    if not torch.cuda.is_available():
        print("there is no GPU here, and nothing is compiled elsewhere: nothing to measure")
        return
    data, results = made_images(options), {}
    for name in options.networks:
        results[name] = measure(name, data, options)
        print(line(name, results[name]), flush=True)
    write_record("combined_kernels", options, results)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help=f"as {' or '.join(NETWORKS[:2])}")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=50_000, help="of one epoch")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args(namespace=argparse.Namespace(device="cuda"))


def measure(name: str, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a step with kernels apart and combined, in turn."""
    compiling.compiled.cache_clear()
    with mock.patch.dict(compiling.COMBINED, combo_kernels=False):
        apart = timed_step(network(name, options), data, options)
    compiling.compiled.cache_clear()
    combined = timed_step(network(name, options), data, options)
    pairs = in_turn(apart, combined, options.repeats)
    apart_ms, combined_ms = map(median, zip(*pairs, strict=True))
    return {"apart_ms": apart_ms, "combined_ms": combined_ms, **ratio_of(pairs)}


def network(name: str, options: argparse.Namespace) -> nn.Module:
    """The network of that name, or that a record of that name tells of."""
    if "/" not in name:
        return made_model(name, options)
    record = Records(RESULTS).at(name)
    if record is None:
        raise SystemExit(f"{name} is no record below {RESULTS}: name one as {NETWORKS[1]}")
    torch.manual_seed(options.seed)
    return restored(record)


def line(name: str, found: dict[str, Any]) -> str:
    """The results of one network."""
    lowest, highest = found["ratio_interval"]
    return (
        f"{name}: {found['combined_ms']:.3f} ms a step, kernels apart {found['apart_ms']:.3f} ms, "
        f"{found['ratio']:.3f} times as long ({lowest:.3f} to {highest:.3f})"
    )


if __name__ == "__main__":
    main()
