"""Models that do something else in evaluation mode than in training."""

from __future__ import annotations

from pathlib import Path

import pytest

import otprune as ot
from tests.checking import MaskRule, check_model
from tests.toy_nets import Toy, make
from tests.two_branches import Rest, net, outcome

THIS_FILE = Path(__file__).name


EVALUATED: dict[str, Rest] = {
    "shifted": lambda m, a, b: m.head(a if m.training else a + 1) + m.other(b),
    "another head": lambda m, a, b: m.head(a + b) if m.training else m.other(a + b),
}


@pytest.mark.parametrize("how", EVALUATED)
def test_what_only_evaluation_mode_does_is_seen(how: str) -> None:
    model = make(net(EVALUATED[how]))
    assert check_model(model, Toy.example(), {"bn1": [0, 3]}).removed == 0
    assert any("in evaluation mode alone" in reason for reason in ot.plan(model, Toy.example(), MaskRule()).frozen)


def test_a_softmax_in_evaluation_mode_costs_nothing() -> None:
    toy = net(lambda m, a, b: m.head(a + b) if m.training else m.head(a + b).softmax(1))
    assert outcome(toy, {"bn1": [0, 3], "bn2": [0, 3]}).removed == 4


UNEVALUATED: dict[str, tuple[Rest, str]] = {
    "missing input": (lambda m, a, b: m.head(a + b) if m.training else m.head(a) + m.extra, "no attribute 'extra'"),
    "branching": (lambda m, a, b: m.head(a + b) if m.training or a.mean() > 0 else m.other(b), "branches on its data"),
}


@pytest.mark.parametrize("how", UNEVALUATED)
def test_a_model_that_does_not_run_in_evaluation_mode_is_planned_with_a_note(how: str) -> None:
    rest, cause = UNEVALUATED[how]
    plan = ot.plan(make(net(rest)), Toy.example(), MaskRule())
    (note,) = plan.notes
    assert "evaluation mode was not looked at" in note and cause in note and THIS_FILE in note
    assert f"note: {note}" in str(plan).splitlines()
    assert f"note: {note}" in str(ot.trace(make(net(rest)), Toy.example())).splitlines()
    assert ot.PruningPlan.from_json(plan.to_json()) == plan


def test_a_model_that_runs_in_both_modes_needs_no_note() -> None:
    assert ot.plan(make(net(EVALUATED["shifted"])), Toy.example(), MaskRule()).notes == []
