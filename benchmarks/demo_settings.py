"""Choose λ, the epochs and the fine-tuning of `otprune demo` on a validation part of its training images.

The demo's test images take no part. The grid was laid around values from trials on an earlier split of the digits, and
the network and its learning rate come from those trials as they are.

python benchmarks/demo_settings.py --json results/demo_settings.json
"""

import argparse
import copy
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import otprune as ot
from otprune import demo
from otprune.demo_screen import Step
from otprune.models import digits_net
from otprune.provenance import provenance
from otprune.tables import table

LAMBDAS = (5e-3, 1e-2, 2e-2)
EPOCHS = (20, 30)
FINE_TUNINGS = ((5, 0.01), (10, 0.02))  # epochs and learning rate
SEEDS = (0, 1, 2)
VALIDATION_SHARE = 0.25
VALIDATION_SPLIT = 0

RULE = (
    "The smallest network (mean FLOPs) of the settings that on the validation images, with every seed, leave at least "
    "3 times fewer FLOPs, lose at most 3 points when only recalibrated and at most 1 point when fine-tuned, and whose "
    "mean accuracy when fine-tuned is at most half a point below the best mean of an unpruned network in the grid. "
    "Settings that differ in the fine-tuning alone have one size: of them, the most accurate, then the shortest."
)
HEADER = ("λ", "epochs", "fine-tuning", "unpruned", "recalibrated", "fine-tuned", "FLOPs ratio", "")


@dataclass(frozen=True)
class Choice:
    """One point of the grid."""

    lam: float
    epochs: int
    fine_tune_epochs: int
    fine_tune_lr: float


@dataclass(frozen=True)
class Trial:
    """What one point of the grid gave with one seed: validation accuracies and the sizes."""

    seed: int
    unpruned: float
    recalibrated: float
    fine_tuned: float
    flops: int
    flops_ratio: float


Trials = dict[Choice, list[Trial]]


def main() -> None:
    """Tries the grid, prints the table, and writes the record where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trials = try_all(validation_digits())
    chosen = choose(trials)
    print(as_table(trials, chosen))
    if options.json is not None:
        demo.write(record(trials, chosen), options.json)


def validation_digits() -> demo.Digits:
    """The demo's training images, split again; what is held out here validates."""
    images, labels = demo.load(demo.Settings().test_share).train.tensors
    return demo.split(images, labels, VALIDATION_SHARE, VALIDATION_SPLIT)


def try_all(digits: demo.Digits) -> Trials:
    """Every point of the grid with every seed."""
    trials: Trials = {}
    for lam, epochs, seed in product(LAMBDAS, EPOCHS, SEEDS):
        settings = replace(demo.Settings(), seed=seed, lam=lam, epochs=epochs)
        for choice, trial in try_one_training(settings, digits).items():
            trials.setdefault(choice, []).append(trial)
    return trials


def try_one_training(settings: demo.Settings, digits: demo.Digits) -> dict[Choice, Trial]:
    """Train and prune as the demo does, then fine-tune the one small network in every way."""
    torch.manual_seed(settings.seed)
    loader = demo.batches(digits, settings)
    model = digits_net()
    exhaust(demo.train(model, loader, digits, settings))
    example = digits.held_out_images[:1]
    small = ot.prune(model, ot.plan(model, example, ot.OptimalThreshold(settings.delta)))
    ot.recalibrate(small, loader)
    unpruned, recalibrated = demo.accuracy(model, digits), demo.accuracy(small, digits)
    flops = ot.cost(small, example).flops
    ratio = ot.cost(model, example).flops / flops
    return {
        Choice(settings.lam, settings.epochs, epochs, lr): Trial(
            settings.seed,
            unpruned,
            recalibrated,
            fine_tuned(small, loader, digits, replace(settings, fine_tune_epochs=epochs, fine_tune_lr=lr)),
            flops,
            ratio,
        )
        for epochs, lr in FINE_TUNINGS
    }


def fine_tuned(small: nn.Module, loader: DataLoader[Any], digits: demo.Digits, settings: demo.Settings) -> float:
    """Accuracy of a fine-tuned copy; the random numbers start over, so that every fine-tuning sees the same batches."""
    own_copy = copy.deepcopy(small)
    with torch.random.fork_rng(devices=[]):
        exhaust(demo.fine_tune(own_copy, loader, digits, settings))
    return demo.accuracy(own_copy, digits)


def exhaust(steps: Iterable[Step]) -> None:
    """Go through all steps of a training."""
    for _ in steps:
        pass


def choose(trials: Trials) -> Choice:
    """What the rule says."""
    needed = best_unpruned(trials) - 0.005
    fit = [choice for choice, own in trials.items() if keeps_the_promise(own) and mean_of("fine_tuned", own) >= needed]
    if not fit:
        raise SystemExit("no point of the grid keeps the demo's promise on the validation images: widen the grid")
    return min(
        fit,
        key=lambda choice: (
            mean_of("flops", trials[choice]),
            -mean_of("fine_tuned", trials[choice]),
            choice.fine_tune_epochs,
        ),
    )


def keeps_the_promise(trials: Sequence[Trial]) -> bool:
    """Whether all seeds do what the demo promises, and its test asks for."""
    return all(
        trial.flops_ratio >= 3
        and trial.recalibrated >= trial.unpruned - 0.03
        and trial.fine_tuned >= trial.unpruned - 0.01
        for trial in trials
    )


def best_unpruned(trials: Trials) -> float:
    """The reference: the best mean accuracy of an unpruned network."""
    return max(mean_of("unpruned", own) for own in trials.values())


def mean_of(name: str, trials: Iterable[Trial]) -> float:
    """Mean of one number over the seeds."""
    return mean(float(getattr(trial, name)) for trial in trials)


def record(trials: Trials, chosen: Choice) -> dict[str, Any]:
    """All that is needed to get the choice again."""
    searched = asdict(chosen)
    return {
        "benchmark": "demo_settings",
        "rule": RULE,
        "configuration": {
            "grid": {"lam": LAMBDAS, "epochs": EPOCHS, "fine_tuning_epochs_and_lr": FINE_TUNINGS},
            "validation_share": VALIDATION_SHARE,
            "validation_split": VALIDATION_SPLIT,
            "test_split_left_out": demo.TEST_SPLIT,
            "fixed": {
                name: value
                for name, value in asdict(demo.Settings()).items()
                if name not in searched and name != "seed" and not name.startswith("latency")
            },
        },
        "seeds": SEEDS,
        "results": {
            "best_unpruned": best_unpruned(trials),
            "grid": [
                {"choice": asdict(choice), "means": means(own), "seeds": [asdict(trial) for trial in own]}
                for choice, own in trials.items()
            ],
            "chosen": searched,
        },
        "provenance": provenance(),
    }


def means(trials: Sequence[Trial]) -> dict[str, float]:
    """The means over the seeds that the rule looks at, and the ratio."""
    return {name: mean_of(name, trials) for name in ("unpruned", "recalibrated", "fine_tuned", "flops", "flops_ratio")}


def as_table(trials: Trials, chosen: Choice) -> str:
    """Means over the seeds, a line for each point of the grid."""
    return table(HEADER, [row(choice, means(own), choice == chosen) for choice, own in trials.items()])


def row(choice: Choice, results: dict[str, float], is_chosen: bool) -> tuple[object, ...]:
    """One point's line."""
    return (
        f"{choice.lam:g}",
        choice.epochs,
        f"{choice.fine_tune_epochs} epochs at {choice.fine_tune_lr:g}",
        *(f"{100 * results[name]:.2f} %" for name in ("unpruned", "recalibrated", "fine_tuned")),
        f"{results['flops_ratio']:.2f}×",
        "chosen" if is_chosen else "",
    )


if __name__ == "__main__":
    main()
