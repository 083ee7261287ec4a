"""What chance may explain of a difference in accuracy, so that a verdict does not hang on one lucky training."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

SPREAD = 0.24  # points: the standard deviation of VGG-14's accuracy on CIFAR-10 over eleven seeds
SURE = 2.0  # standard deviations, where they are known
ENOUGH = 3  # trainings that tell by themselves how far they spread
CLOSE = 0.5  # points of accuracy
UNKNOWN = 2.0  # times as far chance is taken to reach where no seeds were run that tell, in ResNet-20
ALONE, FOUR = (round(SURE * SPREAD * math.sqrt(number), 1) for number in (2, 4))
"""Points by which the accuracies of two trainings may differ by chance, and two differences between two of them."""

# Standard errors that a mean of 3, 4, ... values may be off by, with 95 percent of certainty: Student's t.
STUDENT = (4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def reach(values: Sequence[float], alone: float | None = None) -> float:
    """How far from zero the mean of some differences may lie by chance.

    `alone` is that where they rest on a single training, as all ratios that Network Slimming prunes do, however many
    they are.

    >>> round(reach([1.0, 2.0, 3.0]), 2), reach([1.0, 2.0, 3.0], ALONE), reach([1.0])
    (2.48, 0.7, 0.7)
    """
    if alone is not None:
        return alone
    return ALONE if len(values) < ENOUGH else _student(values) * stdev(values) / math.sqrt(len(values))


def leans(values: Sequence[float], alone: float | None = None) -> bool | None:
    """Whether some differences are above zero on average, or below, by more than chance; None where neither is so.

    >>> leans([0.4, 0.5, 0.6]), leans([-3.0]), leans([-0.1, 0.0, 0.1])
    (True, False, None)
    """
    mean = fmean(values)
    return mean > 0 if abs(mean) > reach(values, alone) else None


def are_level(values: Sequence[float], alone: float | None = None) -> bool:
    """Whether the mean of some differences is near zero even where chance has brought it nearer.

    >>> are_level([-0.1, 0.0, 0.1]), are_level([0.0])
    (True, False)
    """
    return abs(fmean(values)) + reach(values, alone) <= CLOSE


def above(values: Sequence[float], alone: float | None = None) -> bool | None:
    """Whether some differences are above zero on average, by more than chance; None where that cannot be told.

    They are not where they are level.

    >>> above([0.4, 0.5, 0.6]), above([-0.1, 0.0, 0.1]), above([0.4]), above([-3.0])
    (True, False, None, False)
    """
    leaning = leans(values, alone)
    return False if leaning is None and are_level(values, alone) else leaning


def alike(values: Sequence[float], alone: float | None = None) -> bool | None:
    """Whether what differs by these is the same but for chance; None where that cannot be told.

    >>> alike([-0.1, 0.0, 0.1]), alike([0.4]), alike([0.8])
    (True, None, False)
    """
    if are_level(values, alone):
        return True
    return None if leans(values, alone) is None else False


def at_most(values: Sequence[float], limit: float) -> bool | None:
    """Whether the mean of some differences is no more than a limit, surely; None where that cannot be told.

    >>> at_most([0.1, 0.2, 0.3], 0.5), at_most([0.1], 0.5), at_most([0.9, 1.0, 1.1], 0.5)
    (True, None, False)
    """
    over = leans([value - limit for value in values])
    return None if over is None else not over


def spread_of_one(values: Sequence[float]) -> float:
    """How far another value of the same kind may lie from their mean by chance; too few do not tell.

    >>> round(spread_of_one([1.0, 2.0, 3.0]), 2), spread_of_one([1.0, 2.0])
    (4.97, inf)
    """
    return _student(values) * stdev(values) * math.sqrt(1 + 1 / len(values)) if len(values) >= ENOUGH else math.inf


def _student(values: Sequence[float]) -> float:
    """Of so many values, `ENOUGH` at least; the table's last number is a little too much for more."""
    return STUDENT[min(len(values) - ENOUGH, len(STUDENT) - 1)]
