"""What a user should know of a pruning: what was left alone, and what did not come out as asked."""

import math
from collections.abc import Iterator, Mapping, Sequence

from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import PLAN
from otprune.plan import PruningPlan

SHOWN = 3  # of the layers left alone
FAR_OFF = 0.05  # of the share that λ was to steer to


Gammas = Mapping[str, Sequence[float]]
"""The scaling factors that thresholds were found in, by layer."""


def remarks(
    experiment: Experiment, plan: PruningPlan, flops: float, gammas: Gammas, in_rounds: bool = False
) -> list[str]:
    """In plain lines, what the rule's own thresholds missed: `flops` is the share of the FLOPs that is left.

    What is pruned in rounds cannot be asked to meet a share, so the advice is another one there.

    >>> import torch
    >>> from torch import nn
    >>> import otprune as ot
    >>> from otprune.training.run import Training
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1))
    >>> asked = Experiment("net.py:build", "digits", training=Training(target_flops=0.3))
    >>> made = ot.plan(net, torch.zeros(1, 1, 8, 8), ot.OptimalThreshold())
    >>> for line in remarks(asked, made, flops=1.0, gammas={"1": [1.0, 1.0, 1.0, 1.0]}):
    ...     print(line)
    asked for 30 % of the FLOPs, reached 100 %: train longer, start from a larger --lam, or prune with --flops 0.3
    no channel was negligible: train longer or with a larger --lam, or prune with --flops
    """
    chosen = experiment.pruning.target is not None or plan.rule["rule"] != "OptimalThreshold"
    always = [*_left_alone(experiment, plan), *_frozen(plan), *_rounded_back(experiment, plan)]
    if experiment.pruning.target is None:
        always += _tied_at_zero(
            plan, [one for layer in plan.layers if not layer.left_alone for one in gammas[layer.name]]
        )
    return always + ([] if chosen else list(_found(experiment, plan, flops, in_rounds)))


def _left_alone(experiment: Experiment, plan: PruningPlan) -> Iterator[str]:
    names = [layer.name for layer in plan.layers if layer.left_alone]
    if experiment.training.penalized == "untied" and names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield (
            f"{len(names)} of {len(plan.layers)} batch norms are tied to another and were neither penalized nor "
            f"pruned: {', '.join(names[:SHOWN])}{more}"
        )


def _frozen(plan: PruningPlan) -> Iterator[str]:
    """Why negligible channels stay, where an operator is in the way."""
    staying = sum(max(0, len(layer.kept) - (layer.channels - layer.negligible)) for layer in plan.layers)
    if plan.frozen and staying:
        more = f"; and {len(plan.frozen) - 1} more, in {PLAN}" if len(plan.frozen) > 1 else ""
        yield f"{staying} negligible channels stay. What holds channels here: {plan.frozen[0]}{more}"


def _rounded_back(experiment: Experiment, plan: PruningPlan) -> Iterator[str]:
    multiple = experiment.pruning.round_to
    if multiple > 1 and _nothing_went(plan) and any(layer.negligible for layer in plan.layers):
        yield f"no layer could lose a channel and keep a multiple of {multiple}: choose a smaller --round-to"


def _tied_at_zero(plan: PruningPlan, gammas: Sequence[float]) -> Iterator[str]:
    """A ratio that ends among scaling factors that are exactly zero: they tie with the threshold, and ties stay."""
    zero = gammas.count(0) / len(gammas)
    if plan.rule["rule"] == "GlobalRatio" and plan.rule["ratio"] < zero and _nothing_went(plan):
        yield (
            f"{_percent(zero)} of the scaling factors are exactly zero, more than the ratio {plan.rule['ratio']:g}: "
            f"they tie with the threshold, and ties stay. --ratio {math.ceil(10_000 * zero) / 10_000:g} takes them"
        )


def _found(experiment: Experiment, plan: PruningPlan, flops: float, in_rounds: bool) -> Iterator[str]:
    target, multiple = experiment.training.target_flops, experiment.pruning.round_to
    if target is not None and abs(flops / target - 1) > FAR_OFF:
        lam = "larger" if flops > target else "smaller"
        yield (
            f"asked for {_percent(target)} of the FLOPs, reached {_percent(flops)}: "
            f"train longer, start from a {lam} --lam, or prune with --flops {target:g}"
        )
    if target is not None and multiple > 1:
        yield f"λ was steered without regard to --round-to {multiple}, which keeps more: aim lower with --target-flops"
    if _nothing_went(plan) and not any(layer.negligible for layer in plan.layers):
        otherwise = "--rule ns" if in_rounds else "--flops"
        yield f"no channel was negligible: train longer or with a larger --lam, or prune with {otherwise}"


def _nothing_went(plan: PruningPlan) -> bool:
    return not plan.removed and all(len(layer.kept) == layer.channels for layer in plan.layers)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
