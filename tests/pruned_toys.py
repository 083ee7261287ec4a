"""Toy networks pruned by mask: what surgery does beside cutting, a case each."""

from typing import Any

import pytest
import torch
from torch import nn

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.toy_nets import (
    Dense,
    Depthwise,
    DepthwiseGate,
    Grouped,
    InPlace,
    NormalizedShortcut,
    PreActivation,
    RememberedSizes,
    ResidualBranches,
    ResidualIdentity,
    Sequential,
    Toy,
    TwoReaders,
    make,
)

EVERYTHING = list(range(6))
Mask = dict[str, list[int]]


def norms(model: nn.Module) -> dict[str, Any]:
    """The batch norms that have scaling factors, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.affine}


def drawn(model: nn.Module, share: float, seed: int = 0) -> Mask:
    """A share of the channels of every batch norm, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    draws = {name: torch.rand(m.num_features, generator=generator) < share for name, m in norms(model).items()}
    return {name: draw.nonzero().flatten().tolist() for name, draw in draws.items()}


def planned(model: nn.Module, inputs: Any, mask: Mask, **limits: Any) -> ot.PruningPlan:
    """The plan that drops the masked channels as far as the limits allow."""
    shrink(model, mask)
    return ot.plan(model, inputs, MaskRule(), **limits)


def pruned(toy: type[Toy], mask: Mask) -> tuple[Toy, nn.Module, ot.PruningPlan]:
    """A toy, the toy without its masked channels, and the plan that led there."""
    model = make(toy)
    plan = planned(model, toy.example(), mask)
    return model, ot.prune(model, plan), plan


# What surgery does beside cutting: selections, sizes remembered, removed branches, ReLUs taken out of place, groups.
CASES: dict[str, tuple[type[Toy], Mask]] = {
    "cut": (Sequential, {"bn1": [0, 3], "bn2": [1]}),
    "groups": (Grouped, {"bn1": [0, 1], "bn2": [0, 1, 2]}),
    "depthwise": (Depthwise, {"bn1": [2], "bn2": [2]}),
    "selections": (TwoReaders, {"bn1": [0, 1], "bn2": [2, 3]}),
    "selections of a residual stream": (PreActivation, {"bn1": [0, 1, 2], "bn2": [5], "bn_final": [3]}),
    "selections of a concatenation": (Dense, {"bn1": [0], "bn2": [1, 5], "bn_final": [1, 2, 8]}),
    "selections with zeros": (DepthwiseGate, {"bn1": [1], "bn2": [2]}),
    "zeros for a shortcut": (NormalizedShortcut, {"bn1": [0], "bn_of_input": [0], "bn2": [1], "bn_of_block": [1]}),
    "sizes that are remembered": (RememberedSizes, {"bn1": [0, 3], "bn2": [1, 5]}),
    "branch": (ResidualIdentity, {"bn1": [0], "bn3": EVERYTHING}),
    "two branches": (ResidualBranches, {"bn2": EVERYTHING, "bn3": EVERYTHING}),
    "branch before in-place ReLU": (InPlace, {"bn1": [4], "bn2": EVERYTHING}),
}
any_case = pytest.mark.parametrize("case", CASES)
