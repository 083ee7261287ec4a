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


def padded_below(x: Tensor, amount: int = 1) -> Tensor:
    return F.pad(x, (amount,) * 4, value=-torch.inf)


NOT_BELOW: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "padding that is changed in place": lambda m, x: m.head(F.max_pool2d(padded_below(x).add_(1), 3)),
    "windows of padding alone": lambda m, x: m.head(F.hardtanh(F.max_pool2d(padded_below(x, 3), 2))),
    "windows that begin in padding": lambda m, x: m.head(F.hardtanh(F.max_pool2d(padded_below(x), 3, ceil_mode=True))),
    "windows with gaps": lambda m, x: m.head(F.hardtanh(F.max_pool2d(padded_below(x), 2, 1, dilation=(9, 1)))),
}


@pytest.mark.parametrize("how", NOT_BELOW)
def test_padding_below_everything_matters_by(how: str) -> None:
    outcome(net(lambda m, a, b: NOT_BELOW[how](m, a.relu()).mean((2, 3)) + m.other(b).mean((2, 3))), {"bn1": [0, 3]})


def test_padding_below_everything_matters_to_whoever_reads_it_after_the_pool() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        padded = padded_below(a.relu())
        return m.head(F.max_pool2d(padded, 3, 1, 1)) + m.other(padded.sigmoid()) + b.mean()

    outcome(net(rest), {"bn1": [0, 3]})
