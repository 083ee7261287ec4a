"""Sizes that modules remember change with the channels that they count, unless they are used for more than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, check_model, shrink
from tests.net_layers import conv, norm
from tests.pruned_toys import CASES, pruned
from tests.toy_nets import RememberedSizes, SizedByAnother, Toy, conv3, make
from tests.unchanged import unchanged


def test_a_pruned_model_remembers_what_is_left() -> None:
    model, small, _ = pruned(*CASES["sizes that are remembered"])
    assert (small.sizes, small.width, small.first) == ([1, 3], 4, 3)
    assert (model.sizes, model.width, model.first) == ([2, 4], 6, 4)
    assert {type(number) for number in [*small.sizes, small.width, small.first]} == {int}


def test_a_number_that_its_class_lets_nobody_change_changes_too() -> None:
    class Guarded(RememberedSizes):
        def __setattr__(self, name: str, value: Any) -> None:
            assert name not in ("sizes", "width", "first") or name not in vars(self), "read-only"
            super().__setattr__(name, value)

    _, small, _ = pruned(Guarded, CASES["sizes that are remembered"][1])
    assert (small.sizes, small.width, small.first) == ([1, 3], 4, 3)


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


class Paths(Halves):
    """Pieces of a size computed from two numbers that are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.paths = 6, 2
        self.tail = conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(self.width // self.paths, 1)
        return self.head(one) + self.tail(other)


@pytest.mark.parametrize(("mask", "removed"), [([1, 4], 2), ([1, 4, 5], 2), ([4], 0)])
def test_pieces_of_one_size_lose_equally_many(mask: list[int], removed: int) -> None:
    assert check_model(make(Paths), Paths.example(), {"bn1": mask}).removed == removed


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


def test_shares_of_a_number_that_is_remembered_lose_equally_many_however_they_are_listed() -> None:
    class Net(Halves):
        def __init__(self) -> None:
            super().__init__()
            self.width, self.other = 6, conv3(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            one, other = torch.relu(self.bn1(self.conv1(x))).split([self.width // 2] * 2, 1)
            return self.head(one) + self.other(other)

    assert check_model(make(Net), Net.example(), {"bn1": [1, 4, 5]}).removed == 2


def test_unequal_shares_of_a_number_that_is_remembered_stay() -> None:
    class Net(Halves):
        def __init__(self) -> None:
            super().__init__()
            self.width = 6

        def forward(self, x: Tensor) -> Tensor:
            one, other = torch.relu(self.bn1(self.conv1(x))).split([self.width // 3, 2 * self.width // 3], 1)
            return self.head(torch.cat([one, other[:, :1]], 1))

    assert check_model(make(Net), Net.example(), {"bn1": [1, 4, 5]}).removed == 0


def test_a_layout_that_is_another_for_one_channel_is_no_other_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        one, other = torch.relu(net.bn1(net.conv1(x))).split(net.half, 1)
        product: Tensor = (one.contiguous() * other).transpose(1, 2).contiguous().transpose(1, 2)
        return net.used(net.head(product))

    monkeypatch.setattr(Halves, "forward", forward)
    assert check_model(make(Halves), Halves.example(), {"bn1": [0, 1, 3, 4]}).removed == 4


class Counting(Halves):
    """Halves that count how often they run, and draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.runs, self.lines = 0, list[str]()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        self.lines.append("ran")
        self.seen += 1
        out = super().forward(x)
        return out + torch.randn_like(out)


def test_comparing_leaves_the_model_and_the_random_state_as_they_were() -> None:
    model = make(Counting)
    shrink(model, {"bn1": [1, 4]})
    with unchanged(model):
        small = ot.prune(model, ot.plan(model, Counting.example(), MaskRule()))
    assert (model.runs, model.lines, small.runs, small.lines) == (0, [], 0, [])


def test_a_model_that_refuses_the_values_it_would_be_compared_on_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    def used(net: Halves, x: Tensor) -> Tensor:
        torch._assert_async(x.isnan().all())
        return x

    monkeypatch.setattr(Halves, "used", used)
    model = make(Halves)
    shrink(model, {"bn1": [1, 4]})
    assert ot.prune(model, ot.plan(model, Halves.example(), MaskRule())).half == 2


def test_groups_of_a_size_asked_for_before_a_batch_norm_have_as_many_channels_as_then() -> None:
    class Net(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv3(3, 8), norm(2, 8)
            self.bn2, self.head, self.other = norm(2, 8), conv(2, 8, 4), conv(2, 8, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.bn1(self.conv1(x)))
            size, channels, height, width = x.shape
            groups = torch.relu(self.bn2(x)).view(size, 2, channels // 2, height, width)
            return self.head(groups.transpose(1, 2).reshape(size, -1, height, width)) + self.other(x)

    assert check_model(make(Net), Net.example(), {"bn1": [0, 4, 5]}).removed == 0
