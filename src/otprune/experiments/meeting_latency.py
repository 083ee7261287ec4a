"""The largest network that a latency allows: predicted layer by layer, then measured, and corrected by what it took."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from otprune.errors import TrainingError
from otprune.experiments.trials import Trial, Trials

ROUNDINGS = (1, 4, 8, 16)
"""Multiples that channels are rounded up to: runtimes compute so many at once, which differs by runtime and machine."""

ATTEMPTS = 6  # networks to measure for each of them
NEAR_ENOUGH = 0.97  # of the budget


class Clock(Protocol):
    """Tells the latency of a network in milliseconds: at once and roughly, or really."""

    def predicted(self, model: nn.Module) -> float:
        """What its layers take together."""
        ...

    def measured(self, model: nn.Module) -> float:
        """What it takes."""
        ...


def meet_latency(tried: Mapping[int, Trials], budget: float, clock: Clock) -> tuple[Trial, float]:
    """The largest network, by FLOPs, that was measured within the budget, and what the unpruned one takes.

    For each of the multiples, thresholds are shifted to the mildest ones that are predicted to meet the budget. The
    network is measured, what is predicted is corrected by the ratio, and so on until the budget is met closely.

    Args:
        tried: shifted thresholds by the multiple that channels are rounded up to.
        budget: milliseconds.
        clock: what predicts and measures.
    """
    original = next(iter(tried.values())).model
    unpruned = clock.measured(original)
    correction = unpruned / clock.predicted(original)
    for trials in tried.values():
        _Search(trials, budget, clock, correction).go_on()
    measured = [trial for trials in tried.values() for trial in trials.tried if trial.latency is not None]
    met = [trial for trial in measured if trial.latency is not None and trial.latency <= budget]
    if not met:
        _refuse(budget, min(trial.latency for trial in measured if trial.latency is not None), unpruned)
    return max(met, key=lambda trial: trial.flops), unpruned


def _refuse(budget: float, quickest: float, unpruned: float) -> None:
    raise TrainingError(
        f"latency={budget:.4g}ms was not met: the quickest network tried takes {quickest:.4g} ms, the unpruned one "
        f"{unpruned:.4g} ms. Allow more time, or free the machine of other work and try again."
    )


@dataclass
class _Search:
    """For one multiple; `correction` is what a network took over what its layers take.

    Milder shifts than one that was too slow, and severer ones than one that was quick enough, are not tried: where
    other work disturbs the measurements, the search closes in all the same.
    """

    trials: Trials
    budget: float
    clock: Clock
    correction: float

    def __post_init__(self) -> None:
        self._by_layers: dict[int, float] = {}

    def go_on(self) -> None:
        """Measure networks until one meets the budget closely, or none is left to try."""
        low, high = 0, self.trials.last
        for _ in range(ATTEMPTS):
            index = self.trials.mildest(self._corrected, self.budget, low, high)
            latency = self._measured(self.trials.at(index))
            low, high = (index + 1, high) if latency > self.budget else (low, index - 1)
            if low > high or NEAR_ENOUGH * self.budget <= latency <= self.budget:
                return

    def _measured(self, trial: Trial) -> float:
        if trial.latency is None:
            trial.predicted = self._corrected(trial)
            trial.latency = self.clock.measured(self.trials.network(trial))
            self.correction = trial.latency / self._layers(trial)
        return trial.latency

    def _corrected(self, trial: Trial) -> float:
        return self.correction * self._layers(trial)

    def _layers(self, trial: Trial) -> float:
        if id(trial) not in self._by_layers:
            self._by_layers[id(trial)] = self.clock.predicted(self.trials.network(trial))
        return self._by_layers[id(trial)]
