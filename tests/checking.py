"""The property that everything rests on: a pruned network is the masked network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import otprune as ot
from otprune.abstract import arguments
from otprune.errors import VerificationError
from otprune.inputs import tensors_in
from otprune.tensors import substituted
from otprune.thresholds import Thresholds
from otprune.verify import masked_parameters

TOLERANCE = 1e-9


@dataclass(frozen=True)
class MaskRule:
    """A rule that drops the channels that `shrink` made negligible, and the branches that consist of them."""

    floor: float = 1e-6

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        return Thresholds(dict.fromkeys(gammas, self.floor), self.floor)

    def describe(self) -> dict[str, Any]:
        return {"rule": "mask"}


@dataclass(frozen=True)
class Outcome:
    """What the check saw; it is `informative` where the masked network's output depends on its input."""

    error: float
    bn_channels: int
    masked: int
    removed: int
    reasons: tuple[str, ...]
    informative: bool


def shrink(model: nn.Module, mask: Mapping[str, list[int]]) -> None:
    """Make the masked scaling factors negligible, and no other."""
    for name, channels in mask.items():
        gamma = model.get_submodule(name).get_parameter("weight").data
        gamma[gamma.abs() < 1e-2] = 1e-2
        gamma[channels] *= 1e-9 / gamma[channels].abs()


def check_model(model: nn.Module, inputs: Any, mask: Mapping[str, list[int]], **limits: Any) -> Outcome:
    """Prune by mask and compare with the masked original; raise where they differ."""
    shrink(model, mask)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plan = ot.plan(model, inputs, MaskRule(), **limits)
    small = ot.prune(model, plan)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), f"prune changed {name} of the original"
    for name, channels in plan.masked.items():
        assert set(channels) <= set(mask.get(name, ())), f"the plan masks channels of {name} that nobody asked to drop"
    error, informative = compare(model, small, plan, inputs)
    assert error <= TOLERANCE, f"pruned and masked differ by {error}"
    channels = sum(layer.channels for layer in plan.layers)
    kept = sum(len(layer.kept) for layer in plan.layers)
    masked = sum(len(dropped) for dropped in mask.values())
    return Outcome(error, channels, masked, channels - kept, tuple(plan.frozen), informative)


def compare(model: nn.Module, small: nn.Module, plan: ot.PruningPlan, inputs: Any) -> tuple[float, bool]:
    """The largest error relative to the largest output, and whether the outputs depend on the inputs at all."""
    try:
        return ot.verify(model, small, plan, inputs).relative, True
    except VerificationError as failure:
        if "depend" not in str(failure) and "all zero" not in str(failure):
            raise
    args, kwargs = arguments(inputs)
    with torch.no_grad():
        with substituted(model.eval(), masked_parameters(model, plan)):
            expected = tensors_in(model(*args, **kwargs))
        found = tensors_in(small.eval()(*args, **kwargs))
    return max(float((a - b).abs().max()) for a, b in zip(expected, found, strict=True)), False
