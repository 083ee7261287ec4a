"""Models whose code counts channels are refused, and the line that counts is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, shrink
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
        (HardCodedSplit, [1, 4], "self.conv2(one)"),
        (HardCodedSplitNormalized, [1, 4], "self.bn2(one)"),
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


COUNTING: dict[str, Callable[[Tensor], Tensor]] = {
    "groups of a fixed size": lambda x: x.view(2, -1, 4, 8, 8).transpose(1, 2).reshape(2, -1, 8, 8),
    "groups of groups": lambda x: x.view(2, 2, -1, 8, 8).view(2, 4, -1, 8, 8).transpose(1, 2).reshape(2, -1, 8, 8),
    "pieces of a fixed size": lambda x: torch.cat([p * k for p, k in zip(x.split(8, 1), (1, 2, 3), strict=False)], 1),
    "divided by their number": lambda x: x / x.shape[1],
}


@pytest.mark.parametrize("how", COUNTING)
def test_a_line_that_counts_channels_is_refused_and_named(how: str) -> None:
    toy = net(lambda m, a, b: m.narrow(COUNTING[how](m.bn3(m.wide(a + b)))), wide=lambda: conv3(6, 16),
              bn3=lambda: norm(2, 16), narrow=lambda: conv(2, 16, 4))  # fmt: skip
    mask = {"groups of a fixed size": [0, 1, 4, 5, 8, 9, 12, 13], "groups of groups": [0, 1, 8, 9]}.get(how, [0, 8])
    message = refusal(toy, {"bn3": mask})
    assert THIS_FILE in message and "ignore=[...]" in message
