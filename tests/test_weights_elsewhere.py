"""Weights that others than their own layer read."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.checking import check_model
from tests.net_layers import conv, norm
from tests.pruned_toys import EVERYTHING
from tests.toy_nets import Toy, conv3, make
from tests.two_branches import Rest, net, outcome

WEIGHTS_ELSEWHERE: dict[str, Rest] = {
    "concatenated": lambda m, a, b: m.mix(a).mean() + F.conv2d(b, torch.cat([m.mix.weight, m.more.weight])).sum(1),
    "stacked": lambda m, a, b: m.mix(a).mean() + F.conv2d(b, torch.stack([m.mix.weight, m.more.weight]).sum(0)),
    "flipped": lambda m, a, b: m.mix(a) + F.conv2d(b, m.mix.weight.flip(1)),
    "scaled product": lambda m, a, b: torch.addmm(m.head.bias, a.sigmoid().mean((2, 3)), m.flat.t(), beta=0.5, alpha=3),
    "batched product": lambda m, a, b: m.bn3(
        torch.bmm(a.sigmoid().flatten(2).permute(2, 0, 1)[:3], m.solid.permute(2, 1, 0)).flatten(0, 1)
    ),
    "one bias for all": lambda m, a, b: m.bn3(F.linear(a.mean((2, 3)), m.flat5, m.single)),
}


@pytest.mark.parametrize("how", WEIGHTS_ELSEWHERE)
def test_weights_that_are_more_than_a_layer_s_own(how: str) -> None:
    class Stacked(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = conv3(3, 6), norm(2, 6), conv3(3, 6), norm(2, 6)
            self.head, self.mix, self.more = conv(2, 6, 4, bias=True), conv(2, 6, 6), conv(2, 6, 6)
            self.flat, self.flat5 = nn.Parameter(torch.ones(4, 6)), nn.Parameter(torch.ones(5, 6))
            self.solid, self.single = nn.Parameter(torch.ones(5, 6, 3)), nn.Parameter(torch.ones(1))
            self.bn3 = norm(0, 5)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = WEIGHTS_ELSEWHERE[how](self, self.bn1(self.conv1(x)), self.bn2(self.conv2(x)))
            return found

    outcome(Stacked, {"bn1": [0, 2], "bn2": [0, 2], "bn3": [4]})
    check_model(make(Stacked), Toy.example(), {"bn1": EVERYTHING})


def test_a_parameter_that_is_an_output_stays() -> None:
    toy = net(lambda m, a, b: (m.head(a) + m.other(b), m.head.weight))
    assert outcome(toy, {"bn1": [0, 3], "bn2": [0]}).removed == 1
