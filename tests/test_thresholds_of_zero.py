"""Budgets are met from any threshold of a rule, also from zero, which no factor moves."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.experiments.choosing import Target, choose
from otprune.experiments.trials import Trials
from otprune.models import digits_net
from otprune.thresholds import Rule, Thresholds, off_zero
from tests.test_choosing import DIGIT, Cliff

ZEROS = 40
AMONG_ZEROS, ABOVE_ZEROS = ot.GlobalRatio(0.2), ot.GlobalRatio(0.7)


def partly_zero() -> nn.Module:
    """A layer of 100 channels with 40 zeros, and |γ| at 0.01, 0.02 … 0.60."""
    net = nn.Sequential(nn.Conv2d(1, 100, 1), nn.BatchNorm2d(100), nn.ReLU(), nn.Conv2d(100, 1, 1))
    net[1].weight = nn.Parameter(torch.cat([torch.zeros(ZEROS), torch.arange(1, 61) / 100]))
    return net


def kept(rule: Rule, target: Target, accuracy: Cliff | None = None) -> list[int]:
    chosen = choose(partly_zero(), DIGIT, rule, target, accuracy, lambda small: small)
    assert ot.PruningPlan.from_json(chosen.plan.to_json()) == chosen.plan
    return chosen.plan.layers[0].kept


class Apart:
    """Zero for one layer, and for branches, and another threshold elsewhere: what a rule of a user's own may say."""

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        first, *others = gammas
        return Thresholds({first: 0.0, **dict.fromkeys(others, 0.3)}, branch=0.0)

    def describe(self) -> dict[str, Any]:
        return {"rule": "Apart"}


@pytest.mark.parametrize("kind", ["flops", "params"])
@pytest.mark.parametrize("share", [0.61, 0.6, 0.3, 0.05])
def test_a_budget_is_met_alike_from_a_ratio_among_the_zeros_and_above_them(kind: str, share: float) -> None:
    found = kept(AMONG_ZEROS, Target(kind, share))
    assert found == kept(ABOVE_ZEROS, Target(kind, share))
    assert share - 0.02 < len(found) / 100 < share


def test_zeros_go_first_and_alone() -> None:
    trials = Trials(partly_zero(), DIGIT, AMONG_ZEROS, None, lambda small: small)
    left = [len(trials.at(index).plan.layers[0].kept) for index in range(trials.last + 1)]
    assert left == [100, *range(60, 0, -1), 1]
    assert trials.at(trials.index_of(0.0)).plan.rule == AMONG_ZEROS.describe()


@pytest.mark.parametrize("least", [1, 30, 60, 61, 100])
def test_the_accuracy_is_kept_from_there_too(least: int) -> None:
    expected = least if least <= 60 else 100
    assert len(kept(AMONG_ZEROS, Target("max_drop", 1.0), Cliff(least))) == expected


def test_a_rule_with_zero_for_some_layers_takes_channels_of_these_too() -> None:
    torch.manual_seed(0)
    net = digits_net()
    for norm in (module for module in net.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.1, 1.0)
    chosen = choose(net, DIGIT, Apart(), Target("flops", 0.05), None, lambda small: small)
    first = chosen.plan.layers[0]
    assert 0 < len(first.kept) < first.channels


def test_a_threshold_of_zero_is_raised_but_not_lowered() -> None:
    gammas = {"a": torch.tensor([0.0, 0.0, 0.5]), "b": torch.tensor([0.0, 0.25, 0.5])}
    assert AMONG_ZEROS.thresholds(gammas) == Thresholds({"a": 0.0, "b": 0.0}, branch=None)
    for log10, expected in ((-1, 0.0), (0, 0.0), (1, 1.25)):
        assert ot.Shifted(AMONG_ZEROS, log10).thresholds(gammas).layers == {"a": expected, "b": expected}
    assert off_zero(Thresholds({"a": 0.1, "b": 0.2}, 0.0), gammas) == Thresholds({"a": 0.1, "b": 0.2}, 0.125)


def test_a_budget_is_met_as_closely_where_layers_are_left_alone() -> None:
    """Their γ, which may be of another size, have no say in where the threshold lies or what a shift does."""
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Conv2d(1, 50, 1), nn.BatchNorm2d(50), nn.Conv2d(50, 1, 1)) for _ in "ab"))
    net[0][1].weight = nn.Parameter(torch.full((50,), 1000.0))
    net[1][1].weight = nn.Parameter(torch.arange(1, 51) / 50)
    trials = Trials(net, DIGIT, ot.GlobalRatio(0.6), None, lambda small: small, ignore=["0"])
    left = [len(trials.at(index).plan.layers[1].kept) for index in range(trials.last + 1)]
    assert left == [*range(50, 0, -1), 1]
