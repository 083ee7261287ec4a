"""What chance may explain of a difference in accuracy, so that a verdict does not hang on one lucky training."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

SPREAD = 0.24  # points: the standard deviation of VGG-14's accuracy on CIFAR-10 over eleven seeds
SURE = 2.0  # standard errors
ENOUGH = 3  # trainings that tell by themselves how far they spread
CLOSE = 0.5  # points of accuracy
ALONE = round(SURE * SPREAD * math.sqrt(2), 1)
"""Points by which the accuracies of two trainings may differ by chance."""


def reach(values: Sequence[float], alone: bool = False) -> float:
    """How far from zero the mean of some differences may lie by chance.

    `alone` says that they rest on a single training, as all ratios that Network Slimming prunes do.

    >>> round(reach([1.0, 2.0, 3.0]), 2), reach([1.0, 2.0, 3.0], alone=True)
    (1.15, 0.7)
    """
    return ALONE if alone or len(values) < ENOUGH else SURE * stdev(values) / math.sqrt(len(values))


def above(values: Sequence[float], alone: bool = False) -> bool | None:
    """Whether some differences are above zero on average, by more than chance; None where that cannot be told.

    They are not where their mean is near zero and known well enough: to within what counts as close.

    >>> above([0.4, 0.5, 0.6]), above([-0.1, 0.0, 0.1]), above([0.4]), above([-3.0])
    (True, False, None, False)
    """
    mean, margin = fmean(values), reach(values, alone)
    if abs(mean) > margin:
        return mean > 0
    return None if margin > CLOSE else False
