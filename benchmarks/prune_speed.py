"""Trace + plan + prune of otprune against Torch-Pruning's BNScalePruner, in turn on the same models, medians.

Both tools get the same model, of which half the batch-norm channels have negligible scaling factors, and are asked to
take half of the channels out. Torch-Pruning prunes in place, so it gets a copy, made before the clock starts; otprune
makes its own copy while it runs.

python benchmarks/prune_speed.py
python benchmarks/prune_speed.py --models resnet50 densenet121 --repeats 15 --json prune_speed.json
"""

import argparse
import copy
import gc
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch_pruning
import torchvision
from measuring import in_turn, interval_of_median, write_record
from torch import Tensor, nn

import otprune as ot
from otprune.tables import table

# How many times faster than Torch-Pruning otprune has to be.
REQUIRED = {"resnet50": 1.0, "efficientnet_b0": 1.0, "resnet152": 1.0, "densenet121": 10.0}
SHARE = 0.5
NEGLIGIBLE = 1e-6
HEADER = (
    *("model", "otprune", "Torch-Pruning", "ratio", "95 % interval", "of the fastest", "required"),
    *("MACs", "by otprune", "by Torch-Pruning"),
)


def main() -> None:
    """Measures, prints the table, and writes the record where one is asked for."""
    options = parse_options()
    models = {name: measure(name, options) for name in options.models}
    print(as_table(models))
    versions = {name: metadata.version(name) for name in ("torch-pruning", "torchvision")}
    write_record("prune_speed", options, {"models": models, "versions": versions})


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=REQUIRED, default=list(REQUIRED), metavar="MODEL")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each tool on each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the record")
    return parser.parse_args()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Times the two tools in turn on one model, after a first run of each that also shows what they take out."""
    torch.manual_seed(options.seed)
    model = torchvision.models.get_model(name).eval()
    make_half_negligible(model)
    example = torch.randn(1, 3, 224, 224)

    by_otprune = prune_with_otprune(model, example)
    by_torch_pruning = prune_with_torch_pruning(copy.deepcopy(model), example)
    macs = [ot.cost(pruned, example).macs for pruned in (model, by_otprune, by_torch_pruning)]
    del by_otprune, by_torch_pruning

    def otprune_seconds() -> float:
        return seconds(lambda: prune_with_otprune(model, example))

    def torch_pruning_seconds() -> float:
        own_copy = copy.deepcopy(model)
        return seconds(lambda: prune_with_torch_pruning(own_copy, example))

    pairs = in_turn(otprune_seconds, torch_pruning_seconds, options.repeats)
    otprune_s, torch_pruning_s = zip(*pairs, strict=True)
    ratios = [theirs / ours for ours, theirs in pairs]
    return {
        "otprune_s": median(otprune_s),
        "torch_pruning_s": median(torch_pruning_s),
        "ratio": median(ratios),
        "ratio_interval": interval_of_median(ratios),
        "ratio_of_fastest": min(torch_pruning_s) / min(otprune_s),
        "required": REQUIRED[name],
        **dict(zip(("macs", "otprune_macs", "torch_pruning_macs"), macs, strict=True)),
        "pairs_s": pairs,
    }


def make_half_negligible(model: nn.Module) -> None:
    """Draws scaling factors: of every two neighbouring channels of a batch norm one matters, the other does not.

    Which of the two is the same in all layers. So layers that a sum ties together agree, and so do those that read
    more and more of one concatenation; otherwise hardly a channel could go.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    pairs = max(layer.num_features for layer in layers) // 2
    first_matters = torch.rand(pairs) < 0.5
    matters = torch.stack([first_matters, ~first_matters], dim=1).flatten()
    for layer in layers:
        scales = torch.where(matters[: layer.num_features], 1.0, NEGLIGIBLE)
        nn.init.uniform_(layer.weight, 0.5, 1.5)
        with torch.no_grad():
            layer.weight.mul_(scales)


def prune_with_otprune(model: nn.Module, example: Tensor) -> nn.Module:
    """Network Slimming by otprune."""
    return ot.prune(model, ot.plan(model, example, ot.GlobalRatio(SHARE)))


def prune_with_torch_pruning(model: nn.Module, example: Tensor) -> nn.Module:
    """Network Slimming by Torch-Pruning, the way its README goes: all groups ranked together, the classifier kept."""
    pruner = torch_pruning.pruner.BNScalePruner(
        model,
        example,
        importance=torch_pruning.importance.BNScaleImportance(),
        global_pruning=True,
        pruning_ratio=SHARE,
        ignored_layers=[m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == 1000],
    )
    pruner.step()
    return model


def seconds(prune: Callable[[], nn.Module]) -> float:
    """Wall-clock seconds of one run; what the run before left behind is not collected on this one's time."""
    gc.collect()
    start = time.perf_counter()
    prune()
    return time.perf_counter() - start


def as_table(models: dict[str, dict[str, Any]]) -> str:
    """The results, a line for each model."""
    return table(HEADER, [row(name, results) for name, results in models.items()])


def row(name: str, results: dict[str, Any]) -> tuple[object, ...]:
    """One model's line."""
    lowest, highest = results["ratio_interval"]
    return (
        name,
        f"{results['otprune_s']:.3f} s",
        f"{results['torch_pruning_s']:.3f} s",
        f"{results['ratio']:.2f}×",
        f"{lowest:.2f} to {highest:.2f}",
        f"{results['ratio_of_fastest']:.2f}×",
        f"{results['required']:g}×: {verdict(results)}",
        results["macs"],
        results["otprune_macs"],
        results["torch_pruning_macs"],
    )


def verdict(results: dict[str, Any]) -> str:
    """Whether the interval of the ratio, and with it the ratio of the fastest runs, lie on one side of the required.

    Other programs on the same cores stretch Torch-Pruning's forward pass on many threads more than they stretch
    otprune, which computes nothing; the fastest run of each is the one they disturbed least.
    """
    ratios = (*results["ratio_interval"], results["ratio_of_fastest"])
    if min(ratios) > results["required"]:
        return "met"
    return "MISSED" if max(ratios) < results["required"] else "not decided"


if __name__ == "__main__":
    main()
