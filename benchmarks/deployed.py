"""A trained network as it is deployed: accuracy, size and latency, unpruned and pruned, in single precision and INT8.

The run has been trained and pruned; without one, a small network is, on the digits. Accuracy is that of the exported
file on the test images, in its own runtime. Nothing else may run meanwhile:

otprune train --model vgg14 --data cifar10 --lam 1e-4 --out runs/vgg14
otprune prune --out runs/vgg14
python benchmarks/deployed.py runs/vgg14 --json results/deployed-vgg14.json
"""

import argparse
import shutil
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
from measuring import write_record

from otprune.deploy.bench import Settings, bench
from otprune.deploy.export import Request, export
from otprune.deploy.formats import FORMATS, QUANTIZER
from otprune.deploy.packages import versions
from otprune.deploy.runtimes import PACKAGES, Runtime
from otprune.deploy.subjects import Subject
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import PRUNED
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.run_facts import configuration
from otprune.experiments.settings import resolved
from otprune.tables import table

TO = ("onnx", "openvino")
ORIGINAL = "unpruned"
STAGES = {"sparse": ORIGINAL, "pruned": "pruned"}
SMALL_LAM = 2e-3  # leaves the small network a fifth of its FLOPs
HEADER = ("runtime", "network", "accuracy", "MB", "p50 ms", "p99", "times faster")


def main() -> None:
    """Exports, measures, prints a table, and writes a record where that is asked for."""
    options = parse_options()
    with tempfile.TemporaryDirectory() as folder:
        measure(copied(options.run, Path(folder)) if options.run else small(Path(folder)), options)


def copied(run: Path, folder: Path) -> Pipeline:
    """A run that has been trained and pruned, in another folder, since what is exported is noted in a run's own."""
    experiment = configuration(run)
    if experiment is None or not (run / PRUNED).exists():
        raise SystemExit(f"{run}: is not the folder of a run that has been pruned: otprune prune --out {run}")
    for path in run.glob("*.*"):
        shutil.copy(path, folder)
    return opened(experiment, folder)


def small(folder: Path) -> Pipeline:
    """A run that takes seconds."""
    experiment = resolved({"model": "digits_net", "data": "digits", "training.lam": SMALL_LAM}, "digits")
    pipeline = opened(experiment, folder)
    stages.train([pipeline])
    stages.prune(pipeline)
    return pipeline


def opened(experiment: Experiment, folder: Path) -> Pipeline:
    """A run in a folder, on the CPU."""
    return Pipeline(experiment, folder, open_data(experiment.data), torch.device("cpu"))


def measure(pipeline: Pipeline, options: argparse.Namespace) -> None:
    """Everything, for one run."""
    experiment = pipeline.experiment
    results = {FORMATS[to].runtime: deployed(pipeline, to, options) for to in TO}
    print(table(HEADER, [row for runtime, found in results.items() for row in rows(runtime, found)]))
    kept = {key: value for key, value in vars(options).items() if key != "run"} | {"seed": experiment.training.seed}
    costs = {when: pipeline.results[f"cost_{when}"] for when in ("before", "after")}
    made_with = versions((*PACKAGES, QUANTIZER))
    measured = {"experiment": experiment.to_dict(), "costs": costs, "runtimes": results, "versions": made_with}
    write_record("deployed", argparse.Namespace(**kept, model=experiment.model, data=experiment.data), measured)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="folder of a run")
    parser.add_argument("--iters", type=int, default=3_000, help="runs of each network in each runtime")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args()


def deployed(pipeline: Pipeline, to: str, options: argparse.Namespace) -> dict[str, Any]:
    """The run's networks in files of one format: each exported and checked, then all timed in turn."""
    files, shape, runtime = list[dict[str, Any]](), pipeline.data.image_shape, cast(Runtime, FORMATS[to].runtime)
    # What training with the penalty left may be so small that to multiply by it takes longer: fresh weights instead.
    timed = [Subject(ORIGINAL, pipeline.fresh_model().eval(), shape)]
    with tempfile.TemporaryDirectory() as folder:
        for (stage, network), int8 in product(STAGES.items(), (False, True)):
            name = f"{network}, INT8" if int8 else network
            path = Path(folder, f"{stage}{'-int8' if int8 else ''}{FORMATS[to].suffix}")
            entry = export(pipeline, Request(to, int8, stage, path))
            files.append({"name": name, "accuracy": entry["accuracy"], "bytes": entry["bytes"]})
            if name != ORIGINAL:
                timed.append(Subject(name, path, shape, ORIGINAL))
        found = bench(timed, Settings((runtime,), "cpu", 1, options.iters, options.threads))
    return {"networks": files, "latencies": found["latencies"][runtime]}


def rows(runtime: str, found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A row for each network."""
    return [row(runtime, network, found["latencies"][network["name"]]) for network in found["networks"]]


def row(runtime: str, network: dict[str, Any], latency: dict[str, Any]) -> tuple[str, ...]:
    """What one network is like."""
    faster = f"{latency['times_faster_p50']:.2f}" if "times_faster_p50" in latency else ""
    what = f"{network['accuracy']:.2%}", f"{network['bytes'] / 1e6:.2f}"
    return (runtime, network["name"], *what, f"{latency['p50']:.3f}", f"{latency['p99']:.3f}", faster)


if __name__ == "__main__":
    main()
