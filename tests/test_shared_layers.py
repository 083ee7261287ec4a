"""Layers that run more than once, and layers that share parameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.net_layers import conv, norm
from tests.toy_nets import Toy, conv3, make
from tests.two_branches import net, outcome


class TwiceNormalized(Toy):
    """One batch norm module called at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.conv2 = conv3(3, 6), norm(2, 6), conv3(6, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn1(self.conv2(x))))


def test_a_batch_norm_called_twice_goes_on_working() -> None:
    model = make(TwiceNormalized)
    shrink(model, {"bn1": [0, 4]})
    plan = ot.plan(model, model.example(), MaskRule())
    assert [layer.name for layer in plan.layers] == ["bn1"]
    assert plan.layers[0].kept == [1, 2, 3, 5]
    assert ot.verify(model, ot.prune(model, plan), plan, model.example()).relative < 1e-9


@pytest.mark.parametrize("shared", ["weight", "bias"])
def test_batch_norms_that_share_half_their_parameters_are_left_alone(shared: str) -> None:
    def tied() -> nn.Module:
        pair = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(6)])
        setattr(pair[1], shared, getattr(pair[0], shared))
        return pair

    toy = net(lambda m, a, b: m.head(m.bns[0](a).sigmoid()) + m.other(m.bns[1](b).sigmoid()), bns=tied)
    assert outcome(toy, {"bn1": [0, 1], "bns.0": [0, 1], "bns.1": [0]}).removed == 2  # bn1's alone
