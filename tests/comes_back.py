"""Prunings that each leave something else behind, and whether a saved model comes back as it was."""

from typing import Any

import torch
from torch import Tensor, nn

import otprune as ot
from tests.pruned_toys import Mask, planned
from tests.toy_nets import (
    AuxiliaryHead,
    DictOutputs,
    Grouped,
    InPlace,
    PreActivation,
    ResidualIdentity,
    Sequential,
    SharedTowers,
    Toy,
    Transposed,
    TwoReaders,
)

# Each pruning here leaves something else behind: selections, removed branches, a ReLU no longer in place, fewer groups.
PRUNINGS: dict[type[Toy], Mask] = {
    Sequential: {"bn1": [0, 3], "bn2": [1]},
    TwoReaders: {"bn1": [0, 1], "bn2": [2, 3]},
    PreActivation: {"bn1": [0, 1, 2], "bn2": [5], "bn_final": [3]},
    ResidualIdentity: {"bn1": [0], "bn3": [0, 1, 2, 3, 4, 5]},
    InPlace: {"bn1": [0], "bn2": [0, 1, 2, 3, 4, 5]},
    Grouped: {"bn1": [0, 2, 4], "bn2": [0, 3, 6]},
    Transposed: {"bn1": [5], "bn2": [0]},
    SharedTowers: {"bn1": [1, 2]},
    AuxiliaryHead: {"bn1": [2], "bn2": [0]},
    DictOutputs: {"bn2": [0, 4]},
}


def pruned_by(model: nn.Module, inputs: Any, mask: Mask) -> nn.Module:
    """The model without its masked channels."""
    return ot.prune(model, planned(model, inputs, mask))


def assert_same(left: nn.Module, right: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """The same tensors under the same names, and the same outputs, bit for bit."""
    ours, theirs = left.state_dict(), right.state_dict()
    assert list(ours) == list(theirs)
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name]), name
    found = torch.utils._pytree.tree_leaves(left.eval()(*inputs))
    assert all(map(torch.equal, found, torch.utils._pytree.tree_leaves(right.eval()(*inputs))))
