"""How far pruned networks are from their originals before and after constants are folded."""

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import otprune as ot
from tests.checking import MaskRule
from tests.unchanged import unchanged


def differences(
    model: nn.Module, plan: ot.PruningPlan, example: tuple[Tensor, ...]
) -> tuple[list[Tensor], list[Tensor]]:
    """How far each output of the pruned model is from the original's own, not folded and folded."""
    small = ot.prune(model, plan)

    def apart() -> list[Tensor]:
        pairs = (pytree.tree_leaves(net(*example)) for net in (small, model))
        return [(one - other).abs() for one, other in zip(*pairs, strict=True)]

    with torch.no_grad():
        before = apart()
        with unchanged(model):
            assert ot.fold_constants(small, model, plan) is small
        return before, apart()


def errors(model: nn.Module, example: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """How far the pruned model's output is from the original's own, not folded and folded."""
    plan = ot.plan(model, example, MaskRule())
    assert plan.masked
    (before,), (after,) = differences(model, plan, example)
    return before, after
