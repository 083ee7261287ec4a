"""Which scaling factors matter: Optimal Thresholding, a global ratio, shifted thresholds. Pure functions of γ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from .errors import PlanError, ThresholdError

# 10**log10 stays a float up to about here.
_LARGEST_SHIFT = 300


def optimal_threshold(gammas: Tensor, delta: float = 1e-3) -> float:
    """The threshold of equation (7): channels with |γ| strictly below it are negligible, those at it stay.

    It is the first |γ|, in ascending order, at which the cumulative sum of squares reaches δ of the whole. Wherever
    (6) has a solution this is it; where equal γ leave (6) without one, the equal γ are taken together and stay.

    >>> optimal_threshold(torch.tensor([1e-6, -0.5, 1e-7, 0.4]))
    0.4000000059604645
    """
    _require_delta(delta)
    magnitudes = _magnitudes(gammas)
    if not magnitudes.any():
        raise ThresholdError(
            "every scaling factor is zero, so nothing separates them; remove the layer or train with a smaller λ"
        )
    return _first_reaching(delta, magnitudes)


@dataclass(frozen=True)
class Separation:
    """How far apart important and negligible γ lie, and which δ is sure to tell them apart.

    >>> separation(torch.tensor([1e-6, -0.5, 1e-7, 0.4])).safe
    True
    """

    delta: float
    threshold: float
    important: int
    negligible: int
    alpha: float
    """Smallest important over largest negligible γ; infinite where nothing but zeros is negligible."""
    beta: float
    """Largest over smallest important γ."""
    interval: tuple[float, float]
    """[|Γ_N|/|Γ_I|·α⁻², 1/|Γ|·β⁻²]: every δ in it finds this same threshold."""

    @property
    def safe(self) -> bool:
        """Whether δ lies in the interval."""
        lowest, highest = self.interval
        return lowest <= self.delta <= highest

    def __str__(self) -> str:
        lowest, highest = self.interval
        if lowest > highest:
            verdict = "no δ is sure to separate them"
        elif self.safe:
            verdict = f"δ={self.delta:g} is safe: it lies in [{lowest:.2g}, {highest:.2g}]"
        else:
            verdict = f"δ={self.delta:g} is not safe: it lies outside [{lowest:.2g}, {highest:.2g}]"
        counts = f"{self.important} important, {self.negligible} negligible"
        return f"threshold {self.threshold:.3g}: {counts}, α={self.alpha:.3g}, β={self.beta:.3g}; {verdict}"


def separation(gammas: Tensor, delta: float = 1e-3) -> Separation:
    """The paper's α and β of the split that δ makes, and the interval in which δ is sure to make it.

    >>> print(separation(torch.tensor([1e-6, -0.5, 1e-7, 0.4])))
    threshold 0.4: 2 important, 2 negligible, α=4e+05, β=1.25; δ=0.001 is safe: it lies in [6.2e-12, 0.16]
    """
    threshold = optimal_threshold(gammas, delta)
    magnitudes = _magnitudes(gammas)
    below = magnitudes[magnitudes < threshold]
    important = len(magnitudes) - len(below)
    largest_negligible = float(below.max()) if len(below) else 0.0
    alpha = threshold / largest_negligible if largest_negligible else math.inf
    beta = float(magnitudes.max()) / threshold
    interval = (len(below) / important * alpha**-2, beta**-2 / len(magnitudes))
    return Separation(delta, threshold, important, len(below), alpha, beta, interval)


@dataclass(frozen=True)
class Thresholds:
    """What a rule says about one network.

    >>> Thresholds({"bn": 0.1}, branch=None).layers["bn"]
    0.1
    """

    layers: dict[str, float]
    """Per layer: channels with |γ| strictly below it are negligible; infinite where every γ of the layer is zero."""
    branch: float | None
    """A branch whose last γ all lie below it can go; None where the rule removes no branches."""


@runtime_checkable
class Rule(Protocol):
    """Anything that turns the γ of a network, by layer name, into thresholds.

    >>> isinstance(GlobalRatio(0.5), Rule)
    True
    """

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """The thresholds of every layer, and of branches."""
        ...

    def describe(self) -> dict[str, Any]:
        """This rule as JSON-able data, for `rule_from`."""
        ...


@dataclass(frozen=True)
class OptimalThreshold:
    """Equation (6) in each layer; branches by (6) over all γ of the network together.

    >>> OptimalThreshold(delta=1e-3).thresholds({"bn": torch.tensor([1e-6, 0.5])})
    Thresholds(layers={'bn': 0.5}, branch=0.5)
    """

    delta: float = 1e-3

    def __post_init__(self) -> None:
        _require_delta(self.delta)

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """The thresholds of every layer, and of branches."""
        magnitudes = _network_magnitudes(gammas)
        layers = {
            name: _first_reaching(self.delta, layer) if layer.any() else math.inf for name, layer in magnitudes.items()
        }
        return Thresholds(layers, branch=_first_reaching(self.delta, torch.cat(list(magnitudes.values()))))

    def describe(self) -> dict[str, Any]:
        """This rule as JSON-able data, for `rule_from`."""
        return {"rule": "OptimalThreshold", "delta": float(self.delta)}


@dataclass(frozen=True)
class GlobalRatio:
    """Network Slimming: one threshold for all layers, with `ratio` of their channels below it.

    Layers that a plan is told to ignore are not among them, and their channels are not counted.
    Channels that tie with the threshold stay, so with many equal γ (exact zeros, say) fewer than `ratio` may go.

    >>> GlobalRatio(0.5).thresholds({"a": torch.tensor([0.1, 0.2]), "b": torch.tensor([0.3, 0.5])}).layers["b"]
    0.30000001192092896
    """

    ratio: float

    def __post_init__(self) -> None:
        if not (_is_number(self.ratio) and 0 <= self.ratio < 1):
            raise ThresholdError(
                f"ratio must lie in [0, 1), but it is {self.ratio!r}; 0.5 removes half of the channels"
            )

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """The thresholds of every layer, and of branches."""
        magnitudes = _network_magnitudes(gammas)
        ordered = torch.cat(list(magnitudes.values())).sort().values
        # Decimal takes the ratio as it was typed: in binary, 0.29 of 100 channels would be 28.
        threshold = float(ordered[int(Decimal(repr(float(self.ratio))) * len(ordered))])
        layers = {name: threshold if layer.any() else math.inf for name, layer in magnitudes.items()}
        return Thresholds(layers, branch=None)

    def describe(self) -> dict[str, Any]:
        """This rule as JSON-able data, for `rule_from`."""
        return {"rule": "GlobalRatio", "ratio": float(self.ratio)}


@dataclass(frozen=True)
class Shifted:
    """The thresholds of another rule, times 10**log10; those of zero are raised from where `off_zero` puts them.

    >>> Shifted(OptimalThreshold(), log10=-1).thresholds({"bn": torch.tensor([1e-6, 0.5])})
    Thresholds(layers={'bn': 0.05}, branch=0.05)
    """

    rule: Rule
    log10: float

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule) or isinstance(self.rule, type):
            raise ThresholdError(f"only a rule such as OptimalThreshold() can be shifted, not {self.rule!r}")
        if not (_is_number(self.log10) and abs(self.log10) <= _LARGEST_SHIFT):
            raise ThresholdError(
                f"log10 must lie in [-{_LARGEST_SHIFT}, {_LARGEST_SHIFT}], but it is {self.log10!r}; "
                "0.1 raises thresholds by a quarter"
            )

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """The thresholds of every layer, and of branches."""
        unshifted = self.rule.thresholds(gammas)
        if self.log10 > 0:
            unshifted = off_zero(unshifted, gammas)
        factor = 10.0**self.log10
        return Thresholds(
            {name: threshold * factor for name, threshold in unshifted.layers.items()},
            branch=None if unshifted.branch is None else unshifted.branch * factor,
        )

    def describe(self) -> dict[str, Any]:
        """This rule as JSON-able data, for `rule_from`."""
        return {"rule": "Shifted", "of": self.rule.describe(), "log10": float(self.log10)}


def off_zero(thresholds: Thresholds, gammas: Mapping[str, Tensor]) -> Thresholds:
    """The same, but half the smallest |γ| above zero in the place of zero, which no factor would raise.

    That is one number for the whole network, so that a rule with one threshold for all layers keeps to one.

    >>> off_zero(Thresholds({"a": 0.0, "b": 0.5}, branch=None), {"a": torch.tensor([0.0, 0.25]), "b": torch.ones(1)})
    Thresholds(layers={'a': 0.125, 'b': 0.5}, branch=None)
    """
    if 0 not in (*thresholds.layers.values(), thresholds.branch):
        return thresholds
    magnitudes = torch.cat(list(_network_magnitudes(gammas).values()))
    above = float(magnitudes[magnitudes > 0].min()) / 2
    layers = {name: threshold or above for name, threshold in thresholds.layers.items()}
    return Thresholds(layers, branch=above if thresholds.branch == 0 else thresholds.branch)


def rule_from(description: Mapping[str, Any]) -> Rule:
    """The rule that `describe` described.

    >>> rule_from({"rule": "Shifted", "of": {"rule": "GlobalRatio", "ratio": 0.5}, "log10": 0.1})
    Shifted(rule=GlobalRatio(ratio=0.5), log10=0.1)
    """
    try:
        match description:
            case {"rule": "OptimalThreshold", "delta": delta, **rest} if not rest:
                return OptimalThreshold(delta)
            case {"rule": "GlobalRatio", "ratio": ratio, **rest} if not rest:
                return GlobalRatio(ratio)
            case {"rule": "Shifted", "of": inner, "log10": log10, **rest} if not rest:
                return Shifted(rule_from(inner), log10)
    except ThresholdError as error:
        raise PlanError(f"the rule {description!r} is damaged: {error}") from error
    raise PlanError(f"{description!r} describes no rule; make the plan again with this version of otprune")


def _first_reaching(delta: float, magnitudes: Tensor) -> float:
    """The first |γ| in ascending order whose cumulative sum of squares is at least δ of the total."""
    ordered = magnitudes.sort().values
    cumulative = _scaled_to_one(ordered).square().cumsum(0)
    return float(ordered[torch.searchsorted(cumulative, delta * cumulative[-1])])


def _scaled_to_one(magnitudes: Tensor) -> Tensor:
    """Brings the largest |γ| near 1, so that squares neither overflow nor vanish; powers of two round nothing."""
    _, exponent = math.frexp(float(magnitudes.max()))
    # In two steps, because 2**1074, which the smallest float needs, is not a float itself.
    half = -exponent // 2
    return magnitudes * 2.0**half * 2.0 ** (-exponent - half)


def _network_magnitudes(gammas: Mapping[str, Tensor]) -> dict[str, Tensor]:
    magnitudes = {name: _magnitudes(layer, f"layer '{name}': ") for name, layer in gammas.items()}
    if not any(layer.any() for layer in magnitudes.values()):
        raise ThresholdError(
            "no layer of the network has a scaling factor other than zero; train with a smaller λ before pruning"
        )
    return magnitudes


def _magnitudes(gammas: Tensor, where: str = "") -> Tensor:
    magnitudes = gammas.detach().flatten().to("cpu", torch.float64).abs()
    if not len(magnitudes):
        raise ThresholdError(f"{where}there are no scaling factors; leave the layer out")
    broken = len(magnitudes) - int(magnitudes.isfinite().sum())
    if broken:
        raise ThresholdError(
            f"{where}{broken} of {len(magnitudes)} scaling factors are NaN or infinite; "
            "load weights from before training diverged, or train with a lower learning rate"
        )
    return magnitudes


def _require_delta(delta: float) -> None:
    if not (_is_number(delta) and 0 < delta < 1):
        raise ThresholdError(f"δ must lie strictly between 0 and 1, but it is {delta!r}; the paper uses 1e-3")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
