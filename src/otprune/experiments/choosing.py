"""Choosing the thresholds for the user: a network as small as the accuracy allows, or as large as a budget allows.

A budget is one of FLOPs, of parameters, or of latency.
All thresholds of a rule are shifted together. Accuracy is that on images held out of the training: test images have no
say.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from torch import nn

from otprune.errors import TrainingError
from otprune.experiments.meeting_latency import ROUNDINGS, Clock, meet_latency
from otprune.experiments.trials import Trial, Trials
from otprune.plan import PruningPlan
from otprune.thresholds import Rule

TARGETS = ("max_drop", "flops", "params", "latency")
# From the rule's own thresholds outwards, each step as long as all before it: the edge is steep and near them.
STEPS_UP = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
STEPS_DOWN = (-0.05, -0.1, -0.2, -0.4, -0.8, -1.6, -3.2, -6.0)
MOST_TRIALS = 25
ROUNDING = 1e-9  # of accuracies, so that a drop of exactly the points allowed passes


@dataclass(frozen=True)
class Target:
    """What the pruned network is to meet: a loss of accuracy in points, a share of the original FLOPs or parameters, or
    a latency in milliseconds.

    >>> Target("max_drop", 0.5)
    Target(kind='max_drop', value=0.5)
    """

    kind: str
    value: float

    def __post_init__(self) -> None:
        if self.kind not in TARGETS:
            raise TrainingError(f"there is no target {self.kind!r}: choose one of {', '.join(TARGETS)}")
        if self.kind == "max_drop" and not 0 <= self.value <= 100:
            raise TrainingError(f"max_drop is in points of accuracy, from 0 to 100, not {self.value}")
        if self.kind == "latency" and not 0 < self.value < inf:
            raise TrainingError(f"latency is in milliseconds, above 0, not {self.value}")
        if self.kind in ("flops", "params") and not 0 < self.value <= 1:
            raise TrainingError(f"{self.kind} is a share of the original, above 0 and up to 1, not {self.value}")


@dataclass(frozen=True)
class Chosen:
    """The plan that meets the target, and all that was tried, or timed for `latency`, in order, as JSON has it.

    A step has the `shift` (log10; None for the unpruned model, which comes first), the held-out `accuracy` where it was
    measured, and the shares of `flops` and `params` left. `latency` is what was predicted and measured of the plan,
    where that was the target.
    """

    plan: PruningPlan
    steps: list[dict[str, Any]]
    latency: dict[str, Any] | None = None


def choose(
    model: nn.Module,
    example: Any,
    rule: Rule,
    target: Target,
    accuracy: Callable[[nn.Module], float] | None,
    repaired: Callable[[nn.Module], nn.Module],
    *,
    max_ratio: float = 1.0,
    round_to: int = 1,
    ignore: Collection[str] = (),
    clock: Clock | None = None,
) -> Chosen:
    """Shift the rule's thresholds until the pruned network meets the target; `model` is untouched.

    For `max_drop` it is the smallest network, by FLOPs, that keeps the unpruned model's accuracy within that many
    points; for a budget it is the largest network within it. Where there is none, the error says what can be reached.

    Args:
        model: the trained model.
        example: an input of the model.
        rule: the thresholds to shift.
        target: what to meet.
        accuracy: the share of held-out images that a model gets right. Only `max_drop` needs it; a budget is met
            without, and where it is there it is measured for the network chosen and for the unpruned one.
        repaired: brings a pruned model into the state that it is judged in, by re-estimating its statistics.
        max_ratio: at most this share of a layer's channels goes.
        round_to: channels are kept at multiples of this. For `latency` it is chosen by measurement.
        ignore: layers to leave alone.
        clock: predicts and measures latencies; only `latency` needs it.

    >>> import torch
    >>> from otprune import OptimalThreshold
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1))
    >>> net[1].weight.data = torch.tensor([1e-6, 0.1, 0.2, 0.3])
    >>> chosen = choose(net, torch.zeros(1, 1, 8, 8), OptimalThreshold(), Target("flops", 0.6), None, lambda m: m)
    >>> chosen.plan.layers[0].kept
    [2, 3]
    """
    if target.kind == "max_drop" and accuracy is None:
        raise TrainingError("max_drop is chosen by accuracy: say how accurate a model is on held-out images")
    if target.kind == "latency":
        tried = {n: Trials(model, example, rule, accuracy, repaired, max_ratio, n, ignore) for n in ROUNDINGS}
        return _quick_enough(tried, target.value, clock)
    trials = Trials(model, example, rule, accuracy, repaired, max_ratio, round_to, ignore)
    found = _smallest_within(trials, target.value) if target.kind == "max_drop" else _largest_within(trials, target)
    return Chosen(found.plan, trials.described())


def _quick_enough(tried: Mapping[int, Trials], budget: float, clock: Clock | None) -> Chosen:
    if clock is None:
        raise TrainingError("latency is chosen by measuring: say how long a model takes")
    found, unpruned = meet_latency(tried, budget, clock)
    trials = tried[found.round_to]
    if trials.judged:
        trials.accuracy_of(found)
    measured = [trial.described() for one in tried.values() for trial in one.tried if trial.latency is not None]
    latency = {"budget_ms": budget, "unpruned_ms": unpruned, "predicted_ms": found.predicted}
    latency |= {"measured_ms": found.latency, "round_to": found.round_to}
    return Chosen(found.plan, [trials.described()[0], *measured], latency)


def _largest_within(trials: Trials, target: Target) -> Trial:
    """The mildest shift that meets a budget."""

    def share(trial: Trial) -> float:
        found: float = getattr(trial, target.kind)
        return found

    least = share(trials.at(trials.last))
    if least > target.value:
        raise TrainingError(
            f"{target.kind}={target.value:g} cannot be reached: with as few channels in every layer as it must keep, "
            f"{least:.3g} is left. Choose a larger share."
        )
    found = trials.at(trials.mildest(share, target.value, 0, trials.last))
    if trials.judged:
        trials.accuracy_of(found)
    return found


def _smallest_within(trials: Trials, points: float) -> Trial:
    """The smallest of the networks tried that keep the accuracy; they close in on the edge where it falls off."""
    least = trials.unpruned - points / 100 - ROUNDING
    inside, outside = _around_the_edge(trials, least)
    while inside + 1 < outside and len(trials.tried) < MOST_TRIALS:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if trials.accuracy_at(middle) >= least else (inside, middle)
    kept = [trial for trial in trials.tried if trial.accuracy is not None and trial.accuracy >= least]
    return min(kept, key=lambda trial: trial.flops)


def _around_the_edge(trials: Trials, least: float) -> tuple[int, int]:
    """A shift that keeps the accuracy and a larger one that does not, or one past the last where all of them do."""
    inside, outside = _mild_enough(trials, least)
    if outside <= trials.last:
        return inside, outside
    for shift in STEPS_UP:
        index = trials.index_of(shift)
        if trials.accuracy_at(index) >= least:
            inside, outside = index, trials.last + 1
        elif outside <= trials.last:
            break  # the second one in a row: a single one may be chance
        else:
            outside = index
    return inside, outside


def _mild_enough(trials: Trials, least: float) -> tuple[int, int]:
    """The first shift that keeps the accuracy, from the rule's own thresholds downwards, and the one tried before."""
    outside = trials.last + 1
    for index in (*map(trials.index_of, (0.0, *STEPS_DOWN)), 0):
        if trials.accuracy_at(index) >= least:
            return index, outside
        outside = index
    mildest = trials.at(0)
    raise TrainingError(
        f"no thresholds keep an accuracy of {least:.2%} on the held-out images, where the unpruned model has "
        f"{trials.unpruned:.2%}: the mildest, which leave {mildest.flops:.1%} of the FLOPs, reach "
        f"{mildest.accuracy:.2%}. Choose a larger max_drop, or recalibrate on more images."
    )
