"""Flags that pruning would pass over are refused, and only those."""

import pytest

from otprune.errors import TrainingError
from otprune.experiments.fields import Flat
from otprune.experiments.settings import resolved

DIGITS: Flat = {"model": "digits_net", "data": "digits"}


@pytest.mark.parametrize(("rule", "name"), [("ot", "pruning.ratio"), ("ns", "pruning.delta")])
def test_a_flag_that_the_rule_would_pass_over_is_refused(rule: str, name: str) -> None:
    asked = DIGITS | {"pruning.rule": rule, name: 0.3}
    with pytest.raises(TrainingError, match=f"{name} is of no use to the rule {rule}: give --rule"):
        resolved(asked)
    assert resolved(asked | {"pruning.rule": {"ot": "ns", "ns": "ot"}[rule]}).pruning.rule != rule


@pytest.mark.parametrize(("name", "value"), [("latency_runtime", "openvino"), ("latency_threads", 2)])
def test_how_to_measure_latency_is_of_no_use_without_one_to_meet(name: str, value: str | int) -> None:
    asked = DIGITS | {"pruning.flops": 0.4, f"pruning.{name}": value}
    with pytest.raises(TrainingError, match=f"pruning.{name} is of no use without a latency to meet: give --latency"):
        resolved(asked)
    met = {"pruning.flops": None, "pruning.latency": "2ms"}
    assert getattr(resolved(asked | met).pruning, name) == value
