"""Flags that pruning would pass over are refused, and only those."""

from pathlib import Path

import pytest
import torch
from torch import nn

from otprune.errors import TrainingError
from otprune.experiments.choosing import Target, choose
from otprune.experiments.fields import Flat
from otprune.experiments.settings import resolved
from otprune.models import digits_net
from otprune.thresholds import GlobalRatio, OptimalThreshold, Rule
from tests.command_line import run_here

DIGITS: Flat = {"model": "digits_net", "data": "digits"}


@pytest.mark.parametrize(("rule", "name"), [("ot", "pruning.ratio"), ("ns", "pruning.delta")])
def test_a_flag_that_the_rule_would_pass_over_is_refused(rule: str, name: str) -> None:
    asked = DIGITS | {"pruning.rule": rule, name: 0.3}
    with pytest.raises(TrainingError, match=f"{name} is of no use to the rule {rule}: give --rule"):
        resolved(asked)
    assert resolved(asked | {"pruning.rule": {"ot": "ns", "ns": "ot"}[rule]}).pruning.rule != rule


@pytest.mark.parametrize(("name", "value"), [("flops", 0.4), ("params", 0.4), ("latency", "2ms")])
def test_a_ratio_that_a_budget_would_pass_over_is_refused(name: str, value: float | str, tmp_path: Path) -> None:
    flags = DIGITS | {"rule": "ns", "ratio": 0.3, name: value, "out": tmp_path / "run"}
    done = run_here("run", **flags)
    told = f"--ratio is of no use where the threshold is chosen to meet a budget: leave out --{name}, or leave it out\n"
    assert (done.code, done.err) == (1, told) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("without_a_budget", [{}, {"pruning.max_drop": 1.0}])
def test_a_ratio_is_heard_where_there_is_no_budget(without_a_budget: Flat) -> None:
    """Where accuracy is what counts, it is where the search begins."""
    asked = DIGITS | {"pruning.rule": "ns", "pruning.ratio": 0.3} | without_a_budget
    assert resolved(asked).pruning.ratio == 0.3


def test_a_budget_is_met_by_slimming_whatever_the_ratio_but_not_by_ot_whatever_delta() -> None:
    """Which is why the one is refused beside it, and the other is not."""
    torch.manual_seed(0)
    model, example = digits_net(), torch.zeros(1, 1, 8, 8)
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight)

    def kept(rule: Rule) -> list[list[int]]:
        return [
            layer.kept for layer in choose(model, example, rule, Target("flops", 0.4), None, lambda m: m).plan.layers
        ]

    assert kept(GlobalRatio(0.2)) == kept(GlobalRatio(0.8))
    assert kept(OptimalThreshold(1e-3)) != kept(OptimalThreshold(1e-1))


@pytest.mark.parametrize(("name", "value"), [("latency_runtime", "openvino"), ("latency_threads", 2)])
def test_how_to_measure_latency_is_of_no_use_without_one_to_meet(name: str, value: str | int) -> None:
    asked = DIGITS | {"pruning.flops": 0.4, f"pruning.{name}": value}
    with pytest.raises(TrainingError, match=f"pruning.{name} is of no use without a latency to meet: give --latency"):
        resolved(asked)
    met = {"pruning.flops": None, "pruning.latency": "2ms"}
    assert getattr(resolved(asked | met).pruning, name) == value
