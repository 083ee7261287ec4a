"""Sizes that modules remember change with the channels that they count, unless they are used for more than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, check_model
from tests.net_layers import conv, norm
from tests.pruned_toys import CASES, pruned
from tests.toy_nets import SizedByAnother, Toy, conv3, make


def test_a_pruned_model_remembers_what_is_left() -> None:
    model, small, _ = pruned(*CASES["sizes that are remembered"])
    assert (small.sizes, small.width, small.first) == ([1, 3], 4, 3)
    assert (model.sizes, model.width, model.first) == ([2, 4], 6, 4)
    assert {type(number) for number in [*small.sizes, small.width, small.first]} == {int}


def test_a_plan_with_remembered_sizes_comes_back_from_json() -> None:
    _, _, plan = pruned(*CASES["sizes that are remembered"])
    assert plan.memories and ot.PruningPlan.from_json(plan.to_json()) == plan


class Halves(Toy):
    """Two halves of a size that is remembered and, in some tests, used for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.half = 3
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(self.half, 1)
        return self.used(self.head(one * other))

    def used(self, x: Tensor) -> Tensor:
        return x


USES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a factor": lambda net, x: x * net.half,
    "a fraction": lambda net, x: x * (1 / net.half),
    "a condition": lambda net, x: x if net.half > 2 else -x,
    "an argument": lambda net, x: torch.nn.functional.avg_pool2d(x, net.half),
    "another view": lambda net, x: x[:, :, :6].reshape(len(x), 4, net.half, -1),
    "another split": lambda net, x: x[:, :, :6].split([net.half, 3], 2)[0],
    "a split of channels": lambda net, x: torch.stack(
        [net.head(y).split([net.half, 1], 1)[0].sum(1) for y in [x[:, :3]]]
    ),
    "a plain number": lambda net, x: x + int(net.half),
    "the end of a slice": lambda net, x: x[:, :, : net.half].sum(2),
}


def test_halves_of_a_size_that_is_remembered_lose_equally_many() -> None:
    assert check_model(make(Halves), Halves.example(), {"bn1": [1, 4]}).removed == 2


@pytest.mark.parametrize("use", USES)
def test_what_is_used_for_more_than_cutting_stays_as_it_is(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Halves, "used", USES[use])
    seen = check_model(make(Halves), Halves.example(), {"bn1": [1, 4]})
    assert seen.removed == 0 and any("half, which counts it" in reason for reason in seen.reasons)


def test_a_size_that_is_looped_over_is_noticed_when_the_pruned_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Halves, "used", lambda net, x: sum((x.cos() for _ in range(net.half)), x))
    with pytest.raises(VerificationError, match=r"runs other functions.*: one of half"):
        check_model(make(Halves), Halves.example(), {"bn1": [1, 4]})


def test_a_use_that_nobody_hears_of_is_noticed_by_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Halves, "used", lambda net, x: x * torch.tensor([1.5] * net.half).sum())
    with pytest.raises(VerificationError, match=r"computes something else.*: one of half"):
        check_model(make(Halves), Halves.example(), {"bn1": [1, 4]})


def test_a_trace_leaves_what_modules_remember_as_it_was() -> None:
    model = make(Halves)
    ot.plan(model, Halves.example(), MaskRule())
    assert type(model.half) is int


def test_a_tensor_that_gets_its_size_from_another_loses_as_many_channels() -> None:
    seen = check_model(make(SizedByAnother), SizedByAnother.example(), {"bn1": [0], "bn2": [0, 1]})
    assert seen.removed == 2


def test_a_tensor_without_channels_that_gets_their_number_as_its_size_holds_them() -> None:
    class Net(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.head = conv3(3, 8), norm(2, 8), conv(2, 8, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn1(self.conv1(x))
            return self.head(y) + x[:, :1].reshape(len(x), y.shape[1], 1, 8).mean(1, keepdim=True)

    assert check_model(make(Net), Net.example(), {"bn1": [0, 3]}).removed == 0
