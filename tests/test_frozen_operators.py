"""Operators that freeze the channels they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.checking import check_model
from tests.net_layers import conv
from tests.toy_nets import Toy, make
from tests.two_branches import net, outcome

OVER_CHANNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "shifted": lambda x: F.pad(x, (0, 0, 0, 0, 1, -1)),
    "largest of neighbours": lambda x: F.max_pool2d(x.transpose(1, 3), (1, 3), 1, (0, 1)).transpose(1, 3),
    "average of neighbours": lambda x: F.avg_pool2d(x.transpose(1, 3), (1, 3), 1, (0, 1)).transpose(1, 3),
    "interpolated": lambda x: F.interpolate(x.transpose(1, 3), (8, 6), mode="bilinear").transpose(1, 3),
    "reflected": lambda x: F.pad(x.flatten(2).transpose(1, 2), (1, -1), "reflect").transpose(1, 2).view(x.shape),
}


@pytest.mark.parametrize("how", OVER_CHANNELS)
def test_what_moves_channels_without_changing_their_number_freezes_them(how: str) -> None:
    toy = net(lambda m, a, b: m.head(OVER_CHANNELS[how](a)) + m.other(b))
    assert outcome(toy, {"bn1": [0, 3]}).removed == 0


def test_places_of_maxima_have_channels_too() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        largest, places = F.max_pool2d(a, 2, return_indices=True)
        return m.head(largest) + places.double().mean((1, 2, 3)).view(-1, 1, 1, 1) + m.other(b).mean()

    assert outcome(net(rest), {"bn1": [0, 3]}).removed == 0


def test_a_slope_that_is_computed_freezes() -> None:
    toy = net(lambda m, a, b: m.head(torch.prelu(m.other(a), b.mean((0, 2, 3))[:4])), head=lambda: conv(2, 4, 4))
    assert outcome(toy, {"bn2": [0, 1]}).removed == 0


def test_an_operator_with_an_out_argument_freezes() -> None:
    toy = net(lambda m, a, b: m.head(torch.add(a, 1, out=torch.empty_like(a))) + m.other(b))
    assert check_model(make(toy), Toy.example(), {"bn1": [0, 3]}).removed == 0


def test_an_operator_with_two_results_freezes() -> None:
    toy = net(lambda m, a, b: m.head(torch.frexp(a.detach())[0]) + m.other(b))
    assert check_model(make(toy), Toy.example(), {"bn1": [0, 3]}).removed == 0
