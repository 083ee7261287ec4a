"""Channels put behind one another, shuffled, or turned into places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import otprune as ot
from tests.net_layers import conv, norm
from tests.pruned_toys import pruned
from tests.toy_nets import Toy, conv3
from tests.two_branches import Rest, net, outcome

MEETINGS: dict[str, tuple[Rest, dict[str, Callable[[], Any]]]] = {
    "along the height": (lambda m, a, b: m.head(torch.cat([a, b], 2)), {}),
    "along the batch": (lambda m, a, b: m.head(torch.cat([a, b])), {}),
    "in one batch norm": (lambda m, a, b: m.head(m.bn3(torch.cat([a, b], 3)).relu()), {"bn3": lambda: norm(2, 6)}),
    "stacked": (lambda m, a, b: m.deep(torch.stack([a, b], 2)), {"deep": lambda: conv(3, 6, 4)}),
}


@pytest.mark.parametrize("how", MEETINGS)
def test_a_channel_that_is_zero_at_some_positions_only_stays(how: str) -> None:
    rest, layers = MEETINGS[how]
    found = outcome(net(rest, **layers), {"bn1": [0, 1, 2], "bn2": [2, 3]})
    assert found.removed == (3 if "bn3" in layers else 2)


def test_pixels_of_one_channel_go_together_or_stay() -> None:
    toy = net(
        lambda m, a, b: m.small(F.pixel_shuffle(m.bn3(m.wide(a + b)), 2)),
        wide=lambda: conv3(6, 12),
        bn3=lambda: norm(2, 12),
        small=lambda: conv(2, 3, 4),
    )
    assert outcome(toy, {"bn3": [0, 1, 4, 5, 6, 7]}).removed == 4


@pytest.mark.parametrize(("groups", "kept"), [(2, 10), (3, 9), (4, 12), (6, 12)])
def test_a_shuffle_into_more_groups_than_channels_a_group_is_left_alone(groups: int, kept: int) -> None:
    class Shuffled(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.head = conv3(3, 12), norm(2, 12), conv(2, 12, 4)

        def forward(self, x: Tensor) -> Tensor:
            n, c, h, w = (x := self.bn1(self.conv1(x))).shape
            return self.head(x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w))

    model, small, plan = pruned(Shuffled, {"bn1": list(range(0, 12, 12 // groups))})
    assert len(plan.layers[0].kept) == kept
    assert any("groups" in reason for reason in plan.frozen) == (kept == 12)
    assert ot.verify(model, small, plan, Shuffled.example()).relative < 1e-9
