"""The property that everything rests on: a pruned network is the masked network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import VerificationError
from otprune.thresholds import Thresholds
from tests.random_nets import Spec, build, example

TOLERANCE = 1e-9


@dataclass(frozen=True)
class MaskRule:
    """A rule that drops the channels it is told to, whatever their scaling factors are."""

    mask: Mapping[str, list[int]]
    branch: float | None = None
    floor: float = field(default=1e-6)

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        return Thresholds({name: self.floor for name in gammas}, self.branch)

    def describe(self) -> dict[str, Any]:
        return {"rule": "mask"}


@dataclass(frozen=True)
class Outcome:
    error: float
    bn_channels: int
    masked: int
    removed: int
    reasons: tuple[str, ...]
    removed_layers: int = 0


def shrink(model: nn.Module, mask: Mapping[str, list[int]]) -> None:
    """Make the masked scaling factors negligible, and no other."""
    for name, channels in mask.items():
        gamma = model.get_submodule(name).weight.data  # type: ignore[union-attr]
        gamma[gamma.abs() < 1e-2] = 1e-2
        gamma[channels] *= 1e-9 / gamma[channels].abs()


def check_model(model: nn.Module, inputs: Any, mask: Mapping[str, list[int]], **limits: Any) -> Outcome:
    """Prune by mask and compare with the masked original; raise where they differ."""
    shrink(model, mask)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plan = ot.plan(model, inputs, MaskRule(mask, branch=1e-6), **limits)
    small = ot.prune(model, plan)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), f"prune changed {name} of the original"
    try:
        error = ot.verify(model, small, plan, inputs).relative
    except VerificationError as failure:
        if "do not depend" not in str(failure) and "all zero" not in str(failure):
            raise
        error = _plain_error(model, small, plan, inputs)
    assert error <= TOLERANCE, f"pruned and masked differ by {error}"
    channels = sum(layer.channels for layer in plan.layers)
    return Outcome(
        error,
        channels,
        sum(len(c) for c in mask.values()),
        channels - sum(len(layer.kept) for layer in plan.layers),
        tuple(plan.frozen),
        len(plan.removed),
    )


def _plain_error(model: nn.Module, small: nn.Module, plan: ot.PruningPlan, inputs: Any) -> float:
    from otprune.verify import _largest, _run, masked_parameters

    expected, _ = _run(model, masked_parameters(model, plan), inputs, {})
    found, _ = _run(small, {}, inputs, {})
    return _largest(expected, found)[0]


def check(spec: Spec, mask: Mapping[str, list[int]]) -> Outcome:
    """The check on a drawn network."""
    return check_model(build(spec), example(spec), mask)
