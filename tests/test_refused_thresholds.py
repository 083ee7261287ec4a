"""A δ out of its range, and scaling factors that are not finite or all zero."""

import math
from typing import Any

import pytest
import torch

import otprune as ot
from otprune.errors import ThresholdError
from tests.refusals import busy, refused
from tests.toy_nets import InPlace, ResidualIdentity, Sequential, Toy, make


class TestThresholds:
    @pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, math.inf, "1e-3", None])
    def test_delta_outside_of_its_range(self, delta: Any) -> None:
        for call in (
            lambda: ot.OptimalThreshold(delta=delta),
            lambda: ot.optimal_threshold(torch.ones(3), delta),
            lambda: ot.separation(torch.ones(3), delta),
        ):
            refused(ThresholdError, "δ must lie strictly between 0 and 1", repr(delta), "1e-3", models=(), call=call)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("rule", [ot.OptimalThreshold(), ot.GlobalRatio(0.5), ot.Shifted(ot.OptimalThreshold(), 1)])
    def test_scaling_factors_that_are_not_finite(self, rule: Any, value: float) -> None:
        model = busy(make(Sequential))
        model.get_parameter("bn2.weight").data[3] = value
        refused(
            ThresholdError, "layer bn2", "NaN or infinite", "Load weights from before",
            models=(model,), call=lambda: ot.plan(model, Sequential.example(), rule),
        )  # fmt: skip

    def test_scaling_factors_that_are_not_finite_in_a_layer_left_alone(self) -> None:
        model = make(Sequential)
        model.get_parameter("bn2.weight").data[3] = math.nan
        assert [len(layer.kept) for layer in ot.plan(model, model.example(), ignore=["bn2"]).layers][1] == 8

    @pytest.mark.parametrize("rule", [ot.OptimalThreshold(), ot.GlobalRatio(0.2)])
    def test_a_layer_whose_scaling_factors_are_all_zero(self, rule: Any) -> None:
        model = busy(make(Sequential))
        model.get_parameter("bn1.weight").data.zero_()
        refused(
            ThresholdError, "layer bn1", "all scaling factors are zero", "smaller λ", 'ignore=["bn1"]',
            models=(model,), call=lambda: ot.plan(model, Sequential.example(), rule),
        )  # fmt: skip
        left_alone = ot.plan(model, Sequential.example(), rule, ignore=["bn1"])
        assert len(left_alone.layers[0].kept) == left_alone.layers[0].channels

    @pytest.mark.parametrize("toy", [ResidualIdentity, InPlace])
    @pytest.mark.parametrize("rule", [ot.OptimalThreshold(), ot.GlobalRatio(0.2)])
    def test_a_branch_whose_last_scaling_factors_are_all_zero_goes(self, toy: type[Toy], rule: Any) -> None:
        model = make(toy)
        last = {"ResidualIdentity": "bn3", "InPlace": "bn2"}[toy.__name__]
        model.get_parameter(f"{last}.weight").data.zero_()
        plan = ot.plan(model, toy.example(), rule)
        assert last in plan.removed
        assert ot.verify(model, ot.prune(model, plan), plan, toy.example()).relative < 1e-9

    def test_every_scaling_factor_of_the_network_zero(self) -> None:
        model = make(ResidualIdentity)
        for name in ("bn1", "bn2", "bn3"):
            model.get_parameter(f"{name}.weight").data.zero_()
        refused(
            ThresholdError, "no layer of the network", "smaller λ",
            models=(model,), call=lambda: ot.plan(model, model.example()),
        )  # fmt: skip
