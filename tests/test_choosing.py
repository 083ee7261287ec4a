"""Thresholds chosen for the user: budgets met as closely as they can be, accuracy kept, by held-out images alone."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune import models
from otprune.errors import TrainingError
from otprune.experiments.choosing import MOST_TRIALS, Chosen, Target, choose
from otprune.experiments.trials import Trials
from otprune.thresholds import Rule
from otprune.training.data import Dataset, load
from otprune.training.evaluation import accuracy
from otprune.training.feed import calibration
from otprune.training.loop import train
from otprune.training.run import Run, Training
from tests.unchanged import unchanged

TRAINING = Training(epochs=5, lam=1e-2, seed=1, augment=False)
DIGIT = torch.zeros(1, 1, 8, 8)
OT = ot.OptimalThreshold()


class Trained:
    """A sparse network, the images it was trained on, and those that were held out."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = models.digits_net()
        digits = load("digits")
        assert isinstance(digits, Dataset)
        self.data, self.held_out = digits.held_out(0.2, seed=0)
        train(Run(self.model, self.data, TRAINING))
        self.judged: list[nn.Module] = []
        self._chosen: dict[tuple[Target, Rule], Chosen] = {}

    def accuracy(self, model: nn.Module) -> float:
        self.judged.append(model)
        return accuracy(model, self.held_out, self.data.mean, self.data.std)

    def repaired(self, model: nn.Module) -> nn.Module:
        return ot.recalibrate(model, calibration(self.data, TRAINING, images=500))

    def chosen(self, target: Target, rule: Rule = OT) -> Chosen:
        if (target, rule) not in self._chosen:
            self.judged.clear()
            with unchanged(self.model):
                found = choose(self.model, DIGIT, rule, target, self.accuracy, self.repaired)
            measured = sum(step["accuracy"] is not None for step in found.steps)
            assert len(self.judged) == measured + 1  # none twice but the unpruned, as it is and repaired
            self._chosen[target, rule] = found
        return self._chosen[target, rule]

    def trials(self) -> Trials:
        return Trials(self.model, DIGIT, OT, self.accuracy, self.repaired)


@pytest.fixture(scope="module")
def trained() -> Trained:
    return Trained()


def step_of(chosen: Chosen) -> dict[str, Any]:
    """The step of the plan that was chosen."""
    shift = chosen.plan.rule.get("log10", 0.0)
    (step,) = [step for step in chosen.steps if step["shift"] == shift]
    return step


@pytest.mark.parametrize("kind", ["flops", "params"])
@pytest.mark.parametrize("value", [0.8, 0.35, 0.1])
def test_a_budget_is_met_and_the_next_larger_network_would_exceed_it(trained: Trained, kind: str, value: float) -> None:
    chosen = trained.chosen(Target(kind, value))
    small = ot.prune(trained.model, chosen.plan)
    before, after = ot.cost(trained.model, DIGIT), ot.cost(small, DIGIT)
    shares = {"flops": after.flops / before.flops, "params": after.parameters / before.parameters}
    assert shares == {name: step_of(chosen)[name] for name in shares}
    assert shares[kind] <= value
    larger = [step[kind] for step in chosen.steps if step[kind] > value]
    assert min(larger) > value and len(chosen.steps) <= MOST_TRIALS
    trials = trained.trials()
    index = trials.index_of(step_of(chosen)["shift"])
    while trials.at(index).plan.cuts == chosen.plan.cuts:
        index -= 1
    assert getattr(trials.at(index), kind) > value
    assert step_of(chosen)["accuracy"] == pytest.approx(trained.accuracy(trained.repaired(small)))


def test_a_budget_of_everything_keeps_everything(trained: Trained) -> None:
    chosen = trained.chosen(Target("flops", 1.0))
    assert step_of(chosen)["flops"] == 1.0
    assert all(len(layer.kept) == layer.channels for layer in chosen.plan.layers)


def test_a_budget_that_cannot_be_reached_says_what_can(trained: Trained) -> None:
    with pytest.raises(TrainingError, match=r"flops=1e-05 cannot be reached: .* 0\.\d+ is left. Choose a larger share"):
        trained.chosen(Target("flops", 1e-5))


@pytest.mark.parametrize("points", [0.0, 1.0, 5.0])
def test_the_accuracy_is_kept_by_the_smallest_network_tried(trained: Trained, points: float) -> None:
    chosen = trained.chosen(Target("max_drop", points))
    unpruned, *steps = chosen.steps
    models = (trained.model, trained.repaired(copy.deepcopy(trained.model)))
    assert unpruned == {"shift": None, "accuracy": max(map(trained.accuracy, models)), "flops": 1.0, "params": 1.0}
    least = unpruned["accuracy"] - points / 100 - 1e-6
    kept = [step for step in steps if step["accuracy"] >= least]
    assert step_of(chosen)["flops"] == min(step["flops"] for step in kept) < 1
    assert len(steps) <= MOST_TRIALS and len(kept) < len(steps)
    small = trained.repaired(ot.prune(trained.model, chosen.plan))
    assert trained.accuracy(small) == pytest.approx(step_of(chosen)["accuracy"]) and trained.accuracy(small) >= least


def test_the_steps_are_json_and_each_is_another_network(trained: Trained) -> None:
    steps = trained.chosen(Target("max_drop", 1.0)).steps
    assert json.loads(json.dumps(steps)) == steps
    assert len({(step["flops"], step["params"]) for step in steps}) >= len(steps) - 1


def test_more_points_never_give_a_larger_network(trained: Trained) -> None:
    shares = [step_of(trained.chosen(Target("max_drop", points)))["flops"] for points in (0.0, 1.0, 5.0, 100.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == trained.trials().at(trained.trials().last).flops  # to lose everything is to keep the least


def test_another_rule_is_shifted_as_well(trained: Trained) -> None:
    chosen = trained.chosen(Target("params", 0.5), ot.GlobalRatio(0.4))
    assert 0.4 < step_of(chosen)["params"] <= 0.5
    assert json.dumps(chosen.plan.rule).count("GlobalRatio") == 1


class Cliff:
    """An accuracy that depends on the channels alone: full down to a number of them, and then not."""

    def __init__(self, least: int, dips: tuple[int, ...] = ()) -> None:
        self.least, self.dips = least, dips

    def __call__(self, model: nn.Module) -> float:
        channels = model.get_submodule("1").num_features
        assert isinstance(channels, int)
        return 0.9 if channels >= self.least and channels not in self.dips else 0.5


def row_of_channels() -> nn.Module:
    """With |γ| at 0.01, 0.02 … 1.00, of which OT takes the lowest fourteen."""
    net = nn.Sequential(nn.Conv2d(1, 100, 1), nn.BatchNorm2d(100), nn.ReLU(), nn.Conv2d(100, 1, 1))
    net[1].weight = nn.Parameter(torch.arange(1, 101) / 100)
    return net


def kept_of_row(judge: Callable[[nn.Module], float], points: float = 1.0, rule: Rule = OT) -> int:
    target = Target("max_drop", points)
    chosen = choose(row_of_channels(), DIGIT, rule, target, judge, lambda small: small)
    return len(chosen.plan.layers[0].kept)


@pytest.mark.parametrize("least", [1, 2, 7, 50, 85, 86, 87, 99, 100])
def test_the_edge_is_found_exactly_on_either_side_of_the_rules_own_thresholds(least: int) -> None:
    assert kept_of_row(Cliff(least)) == least


def test_accuracy_cannot_be_kept_without_images_to_measure_it_on() -> None:
    with pytest.raises(TrainingError, match="max_drop is chosen by accuracy"):
        choose(row_of_channels(), DIGIT, OT, Target("max_drop", 1.0), None, lambda small: small)


def test_pruned_networks_are_held_to_what_repair_alone_would_give() -> None:
    """With statistics that lag behind, the model as it is falls far short of itself repaired."""
    model = row_of_channels()
    accuracy, repaired = Cliff(40), []

    def repair(network: nn.Module) -> nn.Module:
        repaired.append(network)
        return network

    def lagging(network: nn.Module) -> float:
        return accuracy(network) if any(network is one for one in repaired) else 0.1

    chosen = choose(model, DIGIT, OT, Target("max_drop", 1.0), lagging, repair)
    assert len(chosen.plan.layers[0].kept) == 40


def test_a_single_dip_on_the_way_is_not_taken_for_the_edge() -> None:
    own = len(ot.plan(row_of_channels(), DIGIT).layers[0].kept)
    steps = Trials(row_of_channels(), DIGIT, OT, len, lambda small: small)
    dip = len(steps.at(steps.index_of(0.05)).plan.layers[0].kept)
    assert 40 < dip < own
    assert kept_of_row(Cliff(40, dips=(dip,))) == 40


def test_where_nothing_keeps_the_accuracy_the_error_says_what_was_reached() -> None:
    with pytest.raises(TrainingError, match=r"unpruned model has 90\.00%: the mildest, .* reach 50\.00%\. Choose"):
        kept_of_row(_better_unpruned(), points=1.0)


def _better_unpruned() -> Callable[[nn.Module], float]:
    answers = iter([0.9])
    return lambda model: next(answers, 0.5)


def test_a_limit_on_what_a_layer_loses_holds_while_choosing() -> None:
    target = Target("flops", 0.7)
    chosen = choose(row_of_channels(), DIGIT, OT, target, Cliff(0), lambda small: small, max_ratio=0.4)
    assert 60 <= len(chosen.plan.layers[0].kept) <= 70
    with pytest.raises(TrainingError, match="cannot be reached"):
        choose(row_of_channels(), DIGIT, OT, Target("flops", 0.5), Cliff(0), lambda small: small, max_ratio=0.4)


def test_channels_are_kept_at_multiples_while_choosing() -> None:
    target = Target("flops", 0.55)
    chosen = choose(row_of_channels(), DIGIT, OT, target, Cliff(0), lambda small: small, round_to=16)
    assert len(chosen.plan.layers[0].kept) == 48


def test_the_shifts_between_breakpoints_take_the_channels_one_by_one() -> None:
    trials = Trials(row_of_channels(), DIGIT, OT, len, lambda small: small)
    assert trials.last == 100
    kept = [len(trials.at(index).plan.layers[0].kept) for index in range(101)]
    assert kept == [*range(100, 0, -1), 1]
    assert trials.at(trials.index_of(0.0)).shift == 0.0


def test_equal_scaling_factors_go_together_and_zeros_always_go() -> None:
    net = row_of_channels()
    gammas: Tensor = torch.cat([torch.zeros(10), torch.full((40,), 0.2), torch.full((50,), 0.5)])
    net[1].weight = nn.Parameter(gammas)
    trials = Trials(net, DIGIT, OT, len, lambda small: small)
    assert [len(trials.at(index).plan.layers[0].kept) for index in range(trials.last + 1)] == [90, 50, 1]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("size", 0.5, "there is no target 'size': choose one of max_drop, flops, params"),
        ("max_drop", -1.0, "max_drop is in points of accuracy, from 0 to 100, not -1"),
        ("max_drop", float("nan"), "max_drop is in points of accuracy"),
        ("flops", 0.0, "flops is a share of the original, above 0 and up to 1, not 0"),
        ("params", 1.5, "params is a share of the original, above 0 and up to 1, not 1.5"),
        ("flops", float("nan"), "flops is a share"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(kind: str, value: float, said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        Target(kind, value)
