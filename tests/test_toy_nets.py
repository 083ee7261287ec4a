"""The toy networks: each runs, always gives the same, and looks at its input."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.net_layers import ACTIVATIONS
from tests.net_scene import gammas
from tests.toy_nets import TOYS, Activated, make


@pytest.mark.parametrize("name", TOYS)
def test_toy(name: str) -> None:
    toy = TOYS[name]
    inputs = toy.example()
    outputs = tree_leaves(make(toy)(*inputs))
    assert all(map(torch.equal, outputs, tree_leaves(make(toy)(*inputs))))
    changed = tree_leaves(make(toy)(*(tensor + 0.5 for tensor in inputs)))
    assert all((one - other).abs().max() > 1e-3 for one, other in zip(outputs, changed, strict=True))
    assert gammas(make(toy))


@pytest.mark.parametrize("name", TOYS)
def test_toy_trains(name: str) -> None:
    toy = TOYS[name]
    model = make(toy).train()
    losses = [output.square().mean() for output in tree_leaves(model(*toy.example()))]
    gradients = torch.autograd.grad(torch.stack(losses).sum(), list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_toy_with_any_activation(act: str) -> None:
    assert make(Activated, act=act)(*Activated.example()).isfinite().all()
