"""Verification: it tells a wrong model apart, and refuses to compare what cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import VerificationError
from tests.checking import MaskRule, check_model, shrink
from tests.refusals import refused
from tests.toy_nets import Sequential, Toy, make
from tests.two_branches import net
from tests.unchanged import unchanged


class TestVerify:
    def test_outputs_that_do_not_depend_on_inputs(self) -> None:
        model = make(Sequential)
        plan = ot.plan(model, model.example())
        model.get_parameter("head.weight").data.zero_()
        model.head.bias = nn.Parameter(torch.ones(4, dtype=torch.float64))
        small = ot.prune(model, ot.plan(model, model.example()))
        refused(
            VerificationError, "do not depend on its inputs",
            models=(model, small), call=lambda: ot.verify(model, small, plan, model.example()),
        )  # fmt: skip

    @pytest.mark.parametrize("first", [True, False])
    def test_outputs_that_are_not_finite(self, first: bool) -> None:
        class WithRoot(Sequential):
            def forward(self, x: Tensor) -> Any:
                out = super().forward(x)
                return (out.sqrt(), out) if first else (out, out.sqrt())

        model = make(WithRoot)
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        refused(
            VerificationError, f"output[{0 if first else 1}]", "not finite",
            models=(model, small), call=lambda: ot.verify(model, small, plan, model.example()),
        )  # fmt: skip

    def test_a_wrong_model_is_told_apart_from_the_right_one(self) -> None:
        model = make(Sequential)
        shrink(model, {"bn1": [0], "bn2": [1, 2]})
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        small.get_parameter("bn1.bias").data[2] += 1e-3
        with unchanged(model, small):
            found = ot.verify(model, small, plan, model.example())
        assert found.relative > 1e-6 and found.first_layer == "bn1"

    def test_no_layer_is_blamed_for_rounding(self) -> None:
        """In single precision other sums of the same numbers differ by more than a millionth."""
        torch.manual_seed(0)
        widths = [3, *[32] * 24]
        convs = [nn.Conv2d(*ends, 3, padding=1) for ends in pairwise(widths)]
        parts = [part for conv in convs for part in (conv, nn.BatchNorm2d(32), nn.ReLU())]
        model = nn.Sequential(*parts, nn.Conv2d(32, 2, 1)).eval()
        for norm in parts[1::3]:
            norm.get_parameter("weight").data[::2] = 1e-9
            norm.get_buffer("running_var").fill_(0.05)
        image = torch.randn(2, 3, 8, 8)
        plan = ot.plan(model, image)
        small = ot.prune(model, plan)
        rounded = ot.verify(model, small, plan, image)
        assert 0 < rounded.relative < 1e-5 and rounded.first_layer is None and "in layer" not in str(rounded)
        small[4].bias.data += 1.0
        assert ot.verify(model, small, plan, image).first_layer == "4"


@dataclass
class Result:
    scores: Tensor
    best: Tensor
    none: Tensor


def test_outputs_of_any_type_in_any_container_are_verified() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Result:
        scores = m.head(a + b)
        return Result(scores, scores > 0, scores[:0])

    model = make(net(rest))
    shrink(model, {"bn1": [0, 3], "bn2": [0, 3]})
    plan = ot.plan(model, Toy.example(), MaskRule())
    small = ot.prune(model, plan)
    assert ot.verify(model, small, plan, Toy.example()).relative < 1e-9
    small.head.bias.data += 1
    wrong = ot.verify(model, small, plan, Toy.example())
    assert wrong.relative > 1e-3 and wrong.where == "output.scores"


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv, self.bn = nn.Embedding(9, 5), nn.Conv1d(5, 6, 3, padding=1), nn.BatchNorm1d(6)
        self.head = nn.Conv1d(6, 2, 1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.head(self.bn(self.conv(self.table(tokens).transpose(1, 2))).relu())
        packed = nn.utils.rnn.pack_padded_sequence(x.transpose(1, 2), lengths.cpu(), batch_first=True)
        return packed.data


def test_whole_numbers_in_an_example_are_kept_and_verified() -> None:
    model = Tokens().double().eval()
    example = (torch.arange(14).view(2, 7) % 9, torch.tensor([7, 4]))
    found = check_model(model, example, {"bn": [0, 3]})
    assert found.removed == 2 and found.informative


def test_an_example_that_the_seed_of_the_comparison_draws_too_is_compared() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    nn.init.constant_(model[1].weight, 0.5)
    model[1].weight.data[1] = 1e-6
    torch.manual_seed(0)
    image = torch.randn(1, 3, 8, 8)
    plan = ot.plan(model, image)
    assert ot.verify(model, ot.prune(model, plan), plan, image).relative < 1e-5
