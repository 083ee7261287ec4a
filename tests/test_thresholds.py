"""Equation (6) against a literal reading of it, the separation it reports, and the rules built on it."""

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from otprune.errors import PlanError, ThresholdError
from otprune.thresholds import (
    GlobalRatio,
    OptimalThreshold,
    Rule,
    Shifted,
    Thresholds,
    optimal_threshold,
    rule_from,
    separation,
)

# Squares and sums of whole numbers are exact in float64, so the two readings must agree to the last bit.
whole_gammas = st.lists(st.integers(-1000, 1000), min_size=1, max_size=40).filter(any)
dyadic_deltas = st.integers(1, 1023).map(lambda numerator: numerator / 1024)
real_gammas = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40).filter(any)
rules = st.recursive(
    st.one_of(
        st.builds(OptimalThreshold, st.floats(1e-9, 0.999)),
        st.builds(GlobalRatio, st.floats(0, 1, exclude_max=True)),
    ),
    lambda inner: st.builds(Shifted, inner, st.floats(-2, 2)),
    max_leaves=3,
)


def float64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def solutions_of_equation_6(gammas: list[int], delta: float) -> set[int]:
    """Every γ' in Γ with Σ_{γ<γ'} γ² < δ·Σγ² ≤ Σ_{γ<γ'} γ² + γ'², in exact arithmetic."""
    sizes = [abs(gamma) for gamma in gammas]
    goal = Fraction(delta) * sum(size**2 for size in sizes)
    below = {size: sum(other**2 for other in sizes if other < size) for size in sizes}
    return {size for size in sizes if below[size] < goal <= below[size] + size**2}


@given(whole_gammas, dyadic_deltas)
def test_threshold_solves_equation_6_wherever_it_can_be_solved(gammas: list[int], delta: float) -> None:
    solutions = solutions_of_equation_6(gammas, delta)
    if len({abs(gamma) for gamma in gammas}) == len(gammas):
        assert len(solutions) == 1
    if solutions:
        assert {optimal_threshold(float64(gammas), delta)} == solutions


@given(whole_gammas, dyadic_deltas)
def test_what_lies_below_weighs_less_than_delta_and_with_the_ties_at_least_delta(
    gammas: list[int], delta: float
) -> None:
    threshold = optimal_threshold(float64(gammas), delta)
    total = sum(gamma**2 for gamma in gammas)
    assert sum(gamma**2 for gamma in gammas if abs(gamma) < threshold) < delta * total
    assert sum(gamma**2 for gamma in gammas if abs(gamma) <= threshold) >= delta * total


def test_reaching_delta_exactly_is_enough() -> None:
    assert solutions_of_equation_6([3, 4, 5], 0.5) == {4}
    assert optimal_threshold(float64([3, 4, 5]), 0.5) == 4


def test_equal_gammas_leave_equation_6_without_a_solution_and_all_stay() -> None:
    assert solutions_of_equation_6([3] * 5000, 1e-3) == set()
    assert optimal_threshold(float64([3.0] * 5000), 1e-3) == 3.0


@given(real_gammas, dyadic_deltas, st.randoms(use_true_random=False))
def test_order_and_sign_do_not_matter(gammas: list[float], delta: float, random: Any) -> None:
    shuffled = [gamma * random.choice((-1, 1)) for gamma in random.sample(gammas, len(gammas))]
    assert optimal_threshold(float64(shuffled), delta) == optimal_threshold(float64(gammas), delta)


@given(whole_gammas, dyadic_deltas, st.integers(-1000, 1000))
def test_scaling_every_gamma_scales_the_threshold(gammas: list[int], delta: float, exponent: int) -> None:
    scaled = [math.ldexp(gamma, exponent) for gamma in gammas]
    assert optimal_threshold(float64(scaled), delta) == math.ldexp(optimal_threshold(float64(gammas), delta), exponent)


@given(whole_gammas, dyadic_deltas, dyadic_deltas)
def test_a_larger_delta_never_lowers_the_threshold(gammas: list[int], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert optimal_threshold(float64(gammas), low) <= optimal_threshold(float64(gammas), high)


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e200, 1.7e308])
def test_squares_neither_underflow_nor_overflow(size: float) -> None:
    assert optimal_threshold(float64([0.0, size, size])) == size


def test_threshold_is_computed_in_float64() -> None:
    # 2**24 + 1 is no float32: there δ of the total would be less than 1, and the small γ would stay.
    delta = (1 + 2**-30) / (2**24 + 1)
    assert optimal_threshold(torch.tensor([1.0, 4096.0]), delta) == 4096.0
    assert optimal_threshold(torch.tensor([0.1, 0.3], dtype=torch.float16)) == float(torch.tensor(0.1).half())


def test_threshold_leaves_a_trained_parameter_as_it_is() -> None:
    gamma = torch.nn.Parameter(torch.tensor([-0.5, 1e-6]))
    assert optimal_threshold(gamma) == 0.5
    assert gamma.tolist() == pytest.approx([-0.5, 1e-6])


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, math.inf, "1e-3", True, None])
def test_delta_outside_its_range_is_refused(delta: Any) -> None:
    for use in (lambda: optimal_threshold(torch.ones(2), delta), lambda: OptimalThreshold(delta)):
        with pytest.raises(ThresholdError, match="strictly between 0 and 1"):
            use()


@pytest.mark.parametrize(
    ("gammas", "message"),
    [
        ([], "no scaling factors"),
        ([1.0, math.nan], "1 of 2 scaling factors are NaN"),
        ([math.inf, 1.0, -math.inf], "2 of 3 scaling factors"),
        ([0.0, -0.0], "every scaling factor is zero"),
    ],
)
def test_gammas_without_a_threshold_are_refused(gammas: list[float], message: str) -> None:
    for function in (optimal_threshold, separation):
        with pytest.raises(ThresholdError, match=message):
            function(float64(gammas))


def test_separation_by_hand() -> None:
    found = separation(float64([1e-6, 2e-6, 0.2, -0.8]), delta=1e-3)
    assert (found.threshold, found.important, found.negligible) == (0.2, 2, 2)
    assert found.alpha == pytest.approx(1e5)
    assert found.beta == pytest.approx(4)
    assert found.interval == pytest.approx((1e-10, 1 / 64))
    assert found.safe
    assert not separation(float64([1e-6, 2e-6, 0.2, -0.8]), delta=1 / 63).safe


@given(whole_gammas, dyadic_deltas, st.floats(0.001, 0.999))
def test_every_delta_inside_the_interval_finds_the_same_threshold(
    gammas: list[int], delta: float, position: float
) -> None:
    found = separation(float64(gammas), delta)
    lowest, highest = found.interval
    assume(lowest < highest)
    inside = lowest + position * (highest - lowest)
    assert optimal_threshold(float64(gammas), inside) == found.threshold


@pytest.mark.parametrize(("gammas", "negligible"), [([0.5, 0.25], 0), ([0.0, 0.5], 1)])
def test_separation_from_nothing_or_from_zeros_is_infinite(gammas: list[float], negligible: int) -> None:
    found = separation(float64(gammas), delta=0.1)
    assert (found.alpha, found.negligible, found.interval[0]) == (math.inf, negligible, 0)
    assert found.safe


def test_separation_reads_as_one_line_that_says_whether_delta_is_safe() -> None:
    lines = [str(separation(float64(gammas), 1e-3)) for gammas in ([1e-6, 0.5], [0.5] * 5000, [0.9, 0.1, 0.01])]
    for line, verdict in zip(lines, ("is safe", "is not safe", "no δ is sure"), strict=True):
        assert verdict in line
        assert "\n" not in line


def test_optimal_threshold_rule_works_layer_by_layer_and_over_the_network() -> None:
    first, second = float64([1e-4, 0.2]), float64([1e-3, 30.0])
    found = OptimalThreshold(delta=1e-3).thresholds({"first": first, "second": second})
    assert found == Thresholds({"first": 0.2, "second": 30.0}, branch=30.0)


@given(st.dictionaries(st.text(max_size=3), real_gammas, min_size=1, max_size=4), dyadic_deltas)
def test_optimal_threshold_rule_is_the_function_applied(network: dict[str, list[float]], delta: float) -> None:
    gammas = {name: float64(layer) for name, layer in network.items()}
    found = OptimalThreshold(delta).thresholds(gammas)
    assert found.layers == {name: optimal_threshold(layer, delta) for name, layer in gammas.items()}
    assert found.branch == optimal_threshold(torch.cat(list(gammas.values())), delta)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=60, unique=True), st.integers(0, 99))
def test_global_ratio_leaves_that_share_of_channels_below(sizes: list[int], percent: int) -> None:
    half = len(sizes) // 2
    network = {name: float64(layer) for name, layer in (("a", sizes[:half]), ("b", sizes[half:])) if layer}
    found = GlobalRatio(percent / 100).thresholds(network)
    below = sum(int((layer < found.layers[name]).sum()) for name, layer in network.items())
    assert below == percent * len(sizes) // 100
    assert len(set(found.layers.values())) == 1
    assert found.branch is None


def test_global_ratio_means_the_decimal_number_that_was_typed() -> None:
    assert 0.29 * 100 < 29
    assert GlobalRatio(0.29).thresholds({"bn": torch.arange(1.0, 101.0)}).layers["bn"] == 30


def test_global_ratio_keeps_channels_that_tie_with_the_threshold() -> None:
    assert GlobalRatio(0.5).thresholds({"bn": float64([0.1, 0.3, 0.3, 0.5])}).layers["bn"] == 0.3
    assert GlobalRatio(0.5).thresholds({"bn": float64([0.3, 0.3, 0.3, 0.5])}).layers["bn"] == 0.3


def test_shifted_multiplies_every_threshold_of_the_rule_it_shifts() -> None:
    gammas = {"bn": float64([1e-6, 0.5]), "dead": torch.zeros(3)}
    found = Shifted(OptimalThreshold(), log10=0.5).thresholds(gammas)
    assert found.layers == {"bn": pytest.approx(0.5 * math.sqrt(10)), "dead": math.inf}
    assert found.branch == pytest.approx(0.5 * math.sqrt(10))
    assert Shifted(GlobalRatio(0.5), log10=1).thresholds(gammas).branch is None


@pytest.mark.parametrize("rule", [OptimalThreshold(), GlobalRatio(0.2), Shifted(OptimalThreshold(), -1)])
def test_a_layer_of_zeros_is_wholly_negligible_and_a_network_of_zeros_is_refused(rule: Rule) -> None:
    layers = rule.thresholds({"alive": torch.ones(4), "dead": torch.zeros(4)}).layers
    assert layers["dead"] == math.inf
    assert layers["alive"] <= 1
    for network in ({"dead": torch.zeros(4), "deader": torch.zeros(1)}, {}):
        with pytest.raises(ThresholdError, match="no layer of the network"):
            rule.thresholds(network)


@pytest.mark.parametrize("rule", [OptimalThreshold(), GlobalRatio(0.2), Shifted(OptimalThreshold(), -1)])
@pytest.mark.parametrize(("broken", "what"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_broken_gammas_are_refused_by_the_name_of_their_layer(rule: Rule, broken: float, what: str) -> None:
    with pytest.raises(ThresholdError, match=rf"'features\.1'.*{what}.*learning rate"):
        rule.thresholds({"features.0": torch.ones(2), "features.1": torch.tensor([1.0, broken])})


@pytest.mark.parametrize("ratio", [-0.1, 1, 1.5, math.nan, "0.5", False])
def test_ratio_outside_its_range_is_refused(ratio: Any) -> None:
    with pytest.raises(ThresholdError, match=r"\[0, 1\)"):
        GlobalRatio(ratio)


@pytest.mark.parametrize("log10", [math.nan, math.inf, 400, "1"])
def test_shift_that_is_no_number_is_refused(log10: Any) -> None:
    with pytest.raises(ThresholdError, match="log10"):
        Shifted(OptimalThreshold(), log10)


@pytest.mark.parametrize("rule", [0.5, OptimalThreshold])
def test_only_rules_can_be_shifted(rule: Any) -> None:
    with pytest.raises(ThresholdError, match="can be shifted"):
        Shifted(rule, 0.1)


@given(rules)
def test_a_rule_survives_json(rule: Rule) -> None:
    assert rule_from(json.loads(json.dumps(rule.describe()))) == rule


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"rule": "Magic"},
        {"rule": "GlobalRatio"},
        {"rule": "GlobalRatio", "ratio": 0.5, "more": 1},
        {"rule": "GlobalRatio", "ratio": "half"},
        {"rule": "OptimalThreshold", "delta": 2},
        {"rule": "Shifted", "of": {"rule": "Magic"}, "log10": 1},
        {"rule": "Shifted", "of": 3, "log10": 1},
        [],
    ],
)
def test_what_describes_no_rule_is_refused(description: Mapping[str, Any]) -> None:
    with pytest.raises(PlanError, match=r"describes no rule|is damaged"):
        rule_from(description)
