"""Examples that a model does not take."""

from typing import Any

import pytest
import torch
from torch import nn

import otprune as ot
from otprune.errors import ExampleError, PlanError
from tests.refusals import busy, line_of, lines_in, refused
from tests.toy_nets import Sequential, make
from tests.toys.hard_coded import HardCodedView


class TestExamples:
    @pytest.mark.parametrize(
        ("example", "named"),
        [
            (torch.zeros(2, 4, 8, 8, dtype=torch.float64), "(2, 4, 8, 8)"),
            (torch.zeros(3, 8, dtype=torch.float64), "(3, 8)"),
            ({"image": torch.zeros(2, 3, 8, 8, dtype=torch.float64)}, "(2, 3, 8, 8)"),
            ((torch.zeros(2, 3, 8, 8, dtype=torch.float64), 1), "(2, 3, 8, 8)"),
            ("an image", "str"),
        ],
        ids=["channels", "rank", "keyword", "too-many", "text"],
    )
    def test_that_the_model_does_not_take(self, example: Any, named: str) -> None:
        model = busy(make(Sequential))
        for call in (lambda: ot.plan(model, example), lambda: ot.trace(model, example)):
            refused(
                ExampleError, f"Sequential does not run on the example of shape {named}", "Pass an example",
                models=(model,), call=call,
            )  # fmt: skip

    def test_of_the_wrong_shape_names_the_line_that_fails(self) -> None:
        model = make(HardCodedView)
        message = refused(
            ExampleError, "(2, 3, 9, 8)",
            models=(model,), call=lambda: ot.plan(model, torch.zeros(2, 3, 9, 8, dtype=torch.float64)),
        )  # fmt: skip
        assert lines_in(message) == [line_of(HardCodedView.forward, "x.view(-1")]

    @pytest.mark.parametrize("size", [1, 2])
    def test_too_small_for_a_kernel(self, size: int) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
        refused(
            ExampleError, f"(1, 3, {size}, {size})", "Kernel size",
            models=(model,), call=lambda: ot.plan(model, torch.zeros(1, 3, size, size)),
        )  # fmt: skip

    def test_that_a_plan_cannot_write_down(self) -> None:
        model = make(Sequential)
        refused(
            PlanError, "the example holds a object", "use tensors",
            models=(model,), call=lambda: ot.plan(model, {"x": object()}),
        )  # fmt: skip
