"""Networks that a rule's thresholds make when all of them are shifted: which shifts there are, and what comes of them.

A shift changes something only where it carries a threshold past a |γ|. So there are finitely many to choose from, one
between every two neighbours among the |γ|/threshold of a network: the breakpoints. They are counted from the mildest.
A threshold of zero stays where it is until it is raised, and then takes what is exactly zero first.
"""

import copy
import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import otprune as ot
from otprune.errors import TrainingError
from otprune.plan import PruningPlan
from otprune.thresholds import Rule, Shifted, Thresholds, off_zero

SAME = 1e-9  # breakpoints closer than this are one: rounding may put a shift between them on either side
FARTHEST = 300.0


@dataclass
class Trial:
    """A network that was tried: shares of the original's cost, and the held-out accuracy where it was measured.

    Where latency counts, also what it was `predicted` to take and took, in milliseconds, and what its channels were
    rounded up to multiples of.

    >>> Trial(shift=0.1, plan=None, flops=0.5, params=0.2).described()
    {'shift': 0.1, 'accuracy': None, 'flops': 0.5, 'params': 0.2}
    """

    shift: float
    plan: PruningPlan
    flops: float
    params: float
    accuracy: float | None = None
    round_to: int = 1
    predicted: float | None = None
    latency: float | None = None

    def described(self) -> dict[str, Any]:
        """As JSON has it."""
        found = {"shift": self.shift, "accuracy": self.accuracy, "flops": self.flops, "params": self.params}
        timed = {"round_to": self.round_to, "predicted": self.predicted, "latency": self.latency}
        return found if self.latency is None else found | timed


class Trials:
    """All shifts of a rule on a model, and those that were tried; what makes the same network is tried once.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 1, 1))
    >>> net[1].weight.data = torch.tensor([0.1, 0.2, 0.4])
    >>> trials = Trials(net, torch.zeros(1, 1, 8, 8), ot.OptimalThreshold(), len, lambda small: small)
    >>> [trials.at(index).plan.layers[0].kept for index in range(trials.last + 1)]
    [[0, 1, 2], [1, 2], [2], [2]]
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        rule: Rule,
        accuracy: Callable[[nn.Module], float] | None,
        repaired: Callable[[nn.Module], nn.Module],
        max_ratio: float = 1.0,
        round_to: int = 1,
        ignore: Collection[str] = (),
    ) -> None:
        self.model, self.example, self.rule = model, example, rule
        self.max_ratio, self.round_to, self.ignore = max_ratio, round_to, ignore
        self.tried: list[Trial] = []
        self._accuracy, self._repaired = accuracy, repaired
        self._before = ot.cost(model, example)
        self._breakpoints = _breakpoints(model, example, rule, ignore)
        self._at: dict[int, Trial] = {}

    @functools.cached_property
    def unpruned(self) -> float:
        """The held-out accuracy of the model, as it is or repaired, whichever is better.

        The statistics of a short training lag behind its weights, and pruned networks must not gain by repair alone.
        """
        return max(self._measured(self.model), self._measured(self._repaired(copy.deepcopy(self.model))))

    @property
    def judged(self) -> bool:
        """Whether there are images to measure accuracy on."""
        return self._accuracy is not None

    @property
    def last(self) -> int:
        """The index of the largest shift, at which every layer keeps no more than it must."""
        return len(self._breakpoints)

    def index_of(self, shift: float) -> int:
        """The index of the shifts that do what this one does."""
        return bisect_right(self._breakpoints, shift - SAME)

    def at(self, index: int) -> Trial:
        """What comes of the shifts between two breakpoints."""
        if index not in self._at:
            self._at[index] = self._try(self._shift(index))
        return self._at[index]

    def accuracy_at(self, index: int) -> float:
        """The held-out accuracy of what comes of them, repaired."""
        return self.accuracy_of(self.at(index))

    def accuracy_of(self, trial: Trial) -> float:
        """That of a network that was tried."""
        if trial.accuracy is None:
            trial.accuracy = self._measured(self._repaired(self.network(trial)))
        return trial.accuracy

    def network(self, trial: Trial) -> nn.Module:
        """A network that was tried, as pruning leaves it."""
        return ot.prune(self.model, trial.plan)

    def mildest(self, cost: Callable[[Trial], float], budget: float, low: int, high: int) -> int:
        """The index of the mildest shift whose cost is within a budget, of those from `low` to `high`, or else `high`.

        Costs only fall as thresholds rise, so halving finds it.
        """
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if cost(self.at(middle)) <= budget else (middle + 1, high)
        return low

    def described(self) -> list[dict[str, Any]]:
        """The unpruned model and all that was tried, as JSON has it."""
        accuracy = self.unpruned if self.judged else None
        unpruned = {"shift": None, "accuracy": accuracy, "flops": 1.0, "params": 1.0}
        return [unpruned, *(trial.described() for trial in self.tried)]

    def _measured(self, model: nn.Module) -> float:
        if self._accuracy is None:
            raise TrainingError("there are no held-out images to measure accuracy on")
        return self._accuracy(model)

    def _shift(self, index: int) -> float:
        """A shift from the middle between two breakpoints; none at all where that lies between them."""
        if index == self.index_of(0.0):
            return 0.0
        low = self._breakpoints[index - 1] if index else self._breakpoints[0] - 1
        high = self._breakpoints[index] if index < self.last else low + 1
        return min(max((low + high) / 2, -FARTHEST), FARTHEST)

    def _try(self, shift: float) -> Trial:
        rule = Shifted(self.rule, shift) if shift else self.rule
        model, example = self.model, self.example
        plan = ot.plan(model, example, rule, ignore=self.ignore, round_to=self.round_to, max_ratio=self.max_ratio)
        for trial in self.tried:
            if (trial.plan.cuts, trial.plan.removed, trial.plan.masked) == (plan.cuts, plan.removed, plan.masked):
                return trial
        after = ot.cost(ot.prune(self.model, plan), self.example)
        shares = after.flops / self._before.flops, after.parameters / self._before.parameters
        self.tried.append(Trial(shift, plan, *shares, round_to=self.round_to))
        return self.tried[-1]


def _breakpoints(model: nn.Module, example: Any, rule: Rule, ignore: Collection[str]) -> list[float]:
    """log10 of every |γ|/threshold, and of what takes a branch away, in ascending order and each once."""
    seen = _Seen(rule)
    ot.plan(model, example, seen, ignore=ignore)
    places = sorted(math.log10(ratio) for ratio in seen.ratios if 0 < ratio < math.inf)
    return [place for place, before in zip(places, [-math.inf, *places], strict=False) if place - before > SAME]


class _Seen:
    """A rule that notes how far each γ of the network lies from its threshold."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.ratios: list[float] = []

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        found = self.rule.thresholds(gammas)
        self.ratios = list(_ratios(gammas, found))
        return found

    def describe(self) -> dict[str, Any]:
        return self.rule.describe()


def _ratios(gammas: Mapping[str, Tensor], thresholds: Thresholds) -> Iterator[float]:
    raised = off_zero(thresholds, gammas)
    if raised != thresholds:
        yield 1.0  # what is exactly zero goes with the least rise
    for name, gamma in gammas.items():
        magnitudes = gamma.detach().double().abs()
        yield from (magnitudes / raised.layers[name]).tolist()
        if raised.branch is not None:
            yield float(magnitudes.max()) / raised.branch
