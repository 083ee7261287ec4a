"""Masked channels that are constant, but not zero: which constants are followed, and where they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import otprune as ot
from tests.net_layers import conv, norm
from tests.pruned_toys import EVERYTHING, pruned
from tests.toy_nets import Toy, conv3
from tests.two_branches import Rest, net, outcome

# What may happen to a channel that is masked and then constant, but not zero: one half.
GOES: dict[str, Callable[[Tensor], Tensor]] = {
    "where": lambda y: torch.where(y > 0.3, y, y * 2),
    "where both": lambda y: torch.where((y > 0.3) & ~(y > 0.6), y, y * 2),
    "masked_fill": lambda y: y.masked_fill(y > 0.3, 3.0) + y,
    "product with a truth value": lambda y: (y > 0.3) * y,
    "cut off to integers": lambda y: (y * 3).int() * 1.5 + y,
    "bits": lambda y: (y * 5).int().bitwise_and(1) + y,
    "cast to truth values": lambda y: (y - 0.5).bool() * 0.7 + y,
    "rounded to half precision": lambda y: F.softplus(y).half().double(),
    "average": lambda y: F.avg_pool2d(y, 2),
    "average, rounded up": lambda y: F.avg_pool2d(y, 3, 2, ceil_mode=True),
    "maximum, padded": lambda y: F.max_pool2d(y, 3, 1, 1),
    "reflected": lambda y: F.pad(y, (1, 1, 1, 1), mode="reflect"),
    "bicubic": lambda y: F.interpolate(y, scale_factor=2, mode="bicubic"),
}
# Here it is no longer constant, or its constant is not known.
STAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "average, padded": lambda y: F.avg_pool2d(y, 3, 1, 1),
    "average in 3-d, padded": lambda y: F.avg_pool3d(y.unsqueeze(2), (1, 3, 3), 1, (0, 1, 1)).squeeze(2),
    "average with a divisor": lambda y: F.avg_pool2d(y, 2, divisor_override=3),
    "padded with zeros": lambda y: F.pad(y, (1, 1)),
    "padded with a number": lambda y: F.pad(y, (1, 1), value=0.7),
    "times the position": lambda y: y * torch.arange(8.0, dtype=y.dtype),
    "softmax over positions": lambda y: y.softmax(2),
    "sum over positions": lambda y: y.sum((2, 3), keepdim=True),
    "cumulative sum": lambda y: y.cumsum(2),
}


@pytest.mark.parametrize("kind", [*GOES, *STAYS])
def test_constants_are_followed_by_the_operators_themselves(kind: str) -> None:
    class Halves(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.head = conv3(3, 6), norm(2, 6), conv(2, 6, 4, bias=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.head((GOES | STAYS)[kind](torch.sigmoid(self.bn1(self.conv1(x)))))

    model, small, plan = pruned(Halves, {"bn1": [1, 4]})
    assert ot.verify(model, small, plan, Halves.example()).relative < 1e-9
    assert plan.layers[0].kept == ([0, 2, 3, 5] if kind in GOES else EVERYTHING)


VALUES_A_CHANNEL: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "added": (lambda m, x: torch.sigmoid(x + m.each), True),
    "scaled and shifted": (lambda m, x: torch.sigmoid(x * m.one + m.each), True),
    "clamped": (lambda m, x: torch.clamp(x, min=m.each), True),
    "one for all": (lambda m, x: torch.sigmoid(x + m.one), True),
    "along positions": (lambda m, x: torch.sigmoid(x[..., :6] + m.row), False),
    "of a batch norm": (lambda m, x: torch.sigmoid(x + m.bn1.weight.view(-1, 1, 1)), False),
}


@pytest.mark.parametrize("how", VALUES_A_CHANNEL)
def test_a_parameter_with_a_value_a_channel_takes_part_in_constants(how: str) -> None:
    activation, goes = VALUES_A_CHANNEL[how]
    toy = net(
        lambda m, a, b: m.head(activation(m, a)) + m.other(b).mean(),
        each=lambda: nn.Parameter(torch.ones(1, 6, 1, 1)),
        one=lambda: nn.Parameter(torch.ones(1)),
        row=lambda: nn.Parameter(torch.ones(1, 1, 1, 6)),
    )
    assert outcome(toy, {"bn1": [0, 3]}).removed == (2 if goes else 0)


class BatchStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("var", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=True, momentum=0)  # type: ignore[arg-type]


def test_a_constant_is_lost_on_a_batch_norm_that_goes_by_its_batch() -> None:
    toy = net(lambda m, a, b: m.head(m.layer(a.sigmoid())) + m.other(b), layer=BatchStatistics)
    assert outcome(toy, {"bn1": [0, 3]}).removed == 0


ABSORBERS: dict[str, tuple[Rest, bool]] = {
    "bias": (lambda m, a, b: m.head(m.mix(a.sigmoid())) + m.other(b * m.mix.bias.view(-1, 1, 1)), True),
    "mean": (
        lambda m, a, b: m.head(m.bn3(m.mix(a.sigmoid()))) + m.other(b * m.bn3.running_mean.view(-1, 1, 1)),
        False,
    ),
}


@pytest.mark.parametrize("kind", ABSORBERS)
def test_no_constant_goes_into_a_tensor_that_others_read(kind: str) -> None:
    rest, bias = ABSORBERS[kind]
    toy = net(rest, mix=lambda: conv(2, 6, 6, bias=bias), bn3=lambda: norm(2, 6))
    assert outcome(toy, {"bn1": [0, 1]}).removed == 0
