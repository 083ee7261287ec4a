"""Learning rates as pure functions of how far a training has come."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    """The learning rate at a point of the training, counted in epochs; whole numbers are epochs' starts."""

    def __call__(self, epoch: float, epochs: int) -> float: ...


@dataclass(frozen=True)
class Steps:
    """A constant rate, divided by `factor` at given shares of the training.

    >>> [Steps(0.1, (0.5, 0.75))(epoch, 160) for epoch in (0, 80, 120)]
    [0.1, 0.01, 0.001]
    """

    rate: float
    at: Sequence[float] = (0.5, 0.75)
    factor: float = 10.0

    def __call__(self, epoch: float, epochs: int) -> float:
        passed = sum(epoch >= share * epochs for share in self.at)
        return self.rate / self.factor**passed


@dataclass(frozen=True)
class Cosine:
    """A rate that falls along half a wave of the cosine, to zero at the end of the training.

    >>> [round(Cosine(0.1)(epoch, 160), 4) for epoch in (0, 40, 80, 120, 160)]
    [0.1, 0.0854, 0.05, 0.0146, 0.0]
    """

    rate: float

    def __call__(self, epoch: float, epochs: int) -> float:
        return self.rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
