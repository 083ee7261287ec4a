"""Layers of a trained network that let nothing through: what it costs with and without them, and what it computes.

The run was pruned before OT took out branches that are put beside others; they are taken out of its fine-tuned network
as OT does now, by the threshold of the whole network that was trained.

otprune reproduce accuracy-vs-cost --only cifar100/densenet121/lam2e-4-seed0 --no-scratch
python benchmarks/dead_layers.py --json results/dead_layers.json
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measuring import write_record
from torch import Tensor

import otprune as ot
from otprune.experiments.folder import FINETUNED
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.run_facts import configuration
from otprune.experiments.stages import totals
from otprune.thresholds import Thresholds

RUN = Path("runs/reproduce/cifar100/densenet121/lam2e-4-seed0")
IMAGES = 4  # that outputs are compared on


@dataclass(frozen=True)
class BranchesAlone:
    """Nothing is negligible but branches below the threshold."""

    branch: float

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """The same for every network."""
        return Thresholds(dict.fromkeys(gammas, 0.0), self.branch)

    def describe(self) -> dict[str, Any]:
        """What it is."""
        return {"rule": "BranchesAlone", "branch": self.branch}


def main() -> None:
    """Measures, prints what came of it, and writes the record where one is asked for."""
    options = parse_options()
    experiment = configuration(options.run)
    if experiment is None:
        print(f"there is no run in {options.run}, which takes a GPU to make: nothing to measure")
        return
    pipeline = Pipeline(experiment, options.run, open_data(experiment.data), torch.device("cpu"))
    results = measure(pipeline)
    print(*(f"{name}: {value}" for name, value in results.items()), sep="\n")
    options.run = options.run.as_posix()
    write_record("dead_layers", options, results)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=RUN, help="the folder of a run that is fine-tuned")
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args(namespace=argparse.Namespace(seed=0))


def measure(pipeline: Pipeline) -> dict[str, Any]:
    """Costs, test accuracies and the largest difference of outputs."""
    model, example = pipeline.load(FINETUNED), pipeline.example()
    trained = {name: torch.tensor(gamma) for name, gamma in pipeline.results["gammas"].items()}
    branch = ot.OptimalThreshold(pipeline.experiment.pruning.delta).thresholds(trained).branch
    assert branch is not None
    plan = ot.plan(model, example, BranchesAlone(branch))
    small = ot.prune(model, plan)
    silent = [layer.name for layer in plan.layers if len(layer.kept) < layer.channels]
    return {
        "threshold": branch,
        "silent": {name: float(model.get_parameter(f"{name}.weight").detach().abs().max()) for name in silent},
        "with": totals(ot.cost(model, example)) | pipeline.accuracies("finetuned", model),
        "without": totals(ot.cost(small, example)) | pipeline.accuracies("finetuned", small),
        "largest_difference": difference(model, small, pipeline),
    }


def difference(model: torch.nn.Module, small: torch.nn.Module, pipeline: Pipeline) -> float:
    """Of the outputs for some test images in float64, as a share of the largest."""
    pixels, _ = next(iter(pipeline.data.test.batches(IMAGES)))
    mean, std = (number.double().view(1, -1, 1, 1) for number in (pipeline.data.mean, pipeline.data.std))
    images = (pixels.double() / 255 - mean) / std
    with torch.no_grad():
        one, other = (network.double().eval()(images) for network in (model, small))
    return float((one - other).abs().max() / one.abs().max())


if __name__ == "__main__":
    main()
