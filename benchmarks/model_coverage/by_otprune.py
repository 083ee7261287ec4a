"""One model pruned by otprune."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import otprune as ot
from otprune.errors import VerificationError
from otprune.plan import LayerPlan
from otprune.thresholds import Thresholds

from .batch_norms import Mask
from .outcome import WRONG, Outcome, judged


@dataclass(frozen=True)
class ZeroedRule:
    """Drops the channels whose scaling factors are zero, and no branches."""

    floor: float = 1e-6

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """The same for every layer."""
        return Thresholds(dict.fromkeys(gammas, self.floor), None)

    def describe(self) -> dict[str, Any]:
        """This rule as data."""
        return {"rule": "zeroed"}


def prune(model: nn.Module, example: Any, mask: Mask) -> Outcome:
    """Plan, prune and verify a model whose masked channels are zero already."""
    start = time.perf_counter()
    plan = ot.plan(model, example, ZeroedRule())
    small = ot.prune(model, plan)
    seconds = time.perf_counter() - start
    status, message, error = _verified(model, small, plan, example)
    left = {p.name: len(_kept(p, small).intersection(mask[p.name])) for p in plan.layers if p.name in mask}
    return Outcome(
        status,
        message,
        removed=sum(len(mask[name]) - staying for name, staying in left.items()),
        error=error,
        seconds=seconds,
        frozen=[*plan.frozen, *plan.notes],
        staying={name: staying for name, staying in left.items() if staying},
    )


def _verified(model: nn.Module, small: nn.Module, plan: ot.PruningPlan, example: Any) -> tuple[str, str, float | None]:
    try:
        verification = ot.verify(model, small, plan, example)
    except VerificationError as error:  # nobody warned before: the model that came out is wrong
        return WRONG, str(error), None
    status, message = judged(verification.relative)
    return status, f"{message}: {verification}" if message else "", verification.relative


def _kept(layer: LayerPlan, small: nn.Module) -> set[int]:
    """What is still there of a layer; all of it where the plan's word did not become the model's size."""
    weight = getattr(small.get_submodule(layer.name), "weight", None)
    left = 0 if weight is None else len(weight)
    return set(layer.kept) if left == len(layer.kept) else set(range(layer.channels))
