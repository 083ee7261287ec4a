"""Models whose code counts channels are refused, and the line that counts is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch.nn.functional as F
from torch import Tensor

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, check_model, shrink
from tests.net_layers import conv, norm
from tests.refusals import busy, line_of, lines_in, refused
from tests.toy_nets import Toy, conv3, make
from tests.toys.hard_coded import HardCodedGroups, HardCodedSplit, HardCodedSplitNormalized, HardCodedView
from tests.two_branches import net, refusal

THIS_FILE = Path(__file__).name


@pytest.mark.parametrize(
    ("toy", "mask", "culprit"),
    [
        (HardCodedView, [1], "x.view(-1"),
        (HardCodedGroups, [1, 4], "x.view(2, 2, 3"),
    ],
)
def test_a_forward_that_counts_on_its_sizes(toy: type[Toy], mask: list[int], culprit: str) -> None:
    model = busy(make(toy))
    shrink(model, {"bn1": mask})
    plan = ot.plan(model, toy.example(), MaskRule())
    message = refused(
        VerificationError, "does not run", "from the tensor's own shape", "ignore=[...]",
        models=(model,), call=lambda: ot.prune(model, plan),
    )  # fmt: skip
    assert lines_in(message) == [line_of(toy.forward, culprit)]
    left_alone = ot.plan(model, toy.example(), MaskRule(), ignore=["bn1"])
    assert ot.verify(model, ot.prune(model, left_alone), left_alone, toy.example()).relative < 1e-9


OPEN_VIEWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a number in the code": lambda a, b: a.view(len(a), 6, -1),
    "the number of another's channels": lambda a, b: b.view(len(b), a.shape[1] // 2, -1),
    "that of another's among positions": lambda a, b: b.reshape(len(b), 6, a.shape[1] - 2, -1),
}


@pytest.mark.parametrize("how", OPEN_VIEWS)
def test_a_view_that_leaves_a_size_open_is_refused_where_channels_would_become_positions(how: str) -> None:
    toy = net(
        lambda m, a, b: m.head(a.relu()).mean((1, 2, 3)) + OPEN_VIEWS[how](a, b.relu()).amax(-1).flatten(1).sum(1)
    )
    assert "does not cut its channels" in refusal(toy, {"bn1": [0, 1, 2]})


@pytest.mark.parametrize("toy", [HardCodedSplit, HardCodedSplitNormalized])
def test_what_is_split_by_a_number_in_the_code_stays_and_the_line_is_named(toy: type[Toy]) -> None:
    assert check_model(busy(make(toy)), toy.example(), {"bn1": [1, 4]}).removed == 0
    (reason,) = ot.plan(busy(make(toy)), toy.example(), MaskRule()).frozen
    assert lines_in(reason) == [line_of(toy.forward, ".split(3")]


class Attending(Toy):
    """Attention over positions, which divides by the root of the number of channels, said or unsaid."""

    unsaid = False

    def __init__(self) -> None:
        super().__init__()
        self.asks, self.bn1 = conv3(3, 6), norm(2, 6)
        self.holds, self.bn2 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        asked, held = (out.flatten(2).mT for out in (self.bn1(self.asks(x)), self.bn2(self.holds(x))))
        if self.unsaid:
            found = F.scaled_dot_product_attention(asked, held, held)
        else:
            found = (asked / asked.shape[-1] ** 0.5 @ held.mT).softmax(-1) @ held
        return self.head(found.mT.unflatten(2, x.shape[2:]))


class AttendingUnsaid(Attending):
    unsaid = True


@pytest.mark.parametrize("toy", [Attending, AttendingUnsaid])
def test_channels_whose_number_goes_into_a_calculation_stay(toy: type[Toy]) -> None:
    assert check_model(busy(make(toy)), toy.example(), {"bn1": [1, 4], "bn2": [1, 4]}).removed == 0
    plan = ot.plan(busy(make(toy)), toy.example(), MaskRule())
    assert any("its channels are counted" in reason for reason in plan.frozen)


class Counted(Toy):
    """A sum of two paths, the second of which does something with the number of channels of the first."""

    use: Callable[[Tensor, Tensor], Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.head = conv3(3, 6), norm(2, 6), conv(2, 6, 1)
        self.other = conv3(3, 6)

    def forward(self, x: Tensor) -> Tensor:
        counted = F.relu(self.bn1(self.conv1(x)))
        return self.head(counted) + type(self).use(self.other(x), counted)


NUMBERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the divisor": lambda x, z: (x / z.shape[1]).sum(1, True),
    "the end of a slice": lambda x, z: x[:, : z.shape[1]].sum(1, True),
    "how often it is repeated": lambda x, z: x.repeat(1, z.shape[1], 1, 1).sum(1, True),
    "the size of a pool": lambda x, z: F.adaptive_max_pool2d(x, z.shape[1]).mean(),
    "pieces of positions": lambda x, z: x.split(z.shape[1], 2)[0].mean(),
}


@pytest.mark.parametrize("use", NUMBERS)
def test_channels_whose_number_an_operator_gets_stay(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "use", NUMBERS[use], raising=False)
    seen = check_model(make(Counted), Counted.example(), {"bn1": [1, 4]})
    assert seen.removed == 0 and any("its channels are counted" in reason for reason in seen.reasons)


COUNTING: dict[str, Callable[[Tensor], Tensor]] = {
    "groups of a fixed size": lambda x: x.view(2, -1, 4, 8, 8).transpose(1, 2).reshape(2, -1, 8, 8),
    "groups of groups": lambda x: x.view(2, 2, -1, 8, 8).view(2, 4, -1, 8, 8).transpose(1, 2).reshape(2, -1, 8, 8),
}


@pytest.mark.parametrize("how", COUNTING)
def test_a_line_that_counts_channels_is_refused_and_named(how: str) -> None:
    toy = net(lambda m, a, b: m.narrow(COUNTING[how](m.bn3(m.wide(a + b)))), wide=lambda: conv3(6, 16),
              bn3=lambda: norm(2, 16), narrow=lambda: conv(2, 16, 4))  # fmt: skip
    mask = {"groups of a fixed size": [0, 1, 4, 5, 8, 9, 12, 13], "groups of groups": [0, 1, 8, 9]}[how]
    message = refusal(toy, {"bn3": mask})
    assert THIS_FILE in message and "ignore=[...]" in message
