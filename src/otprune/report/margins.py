"""Two methods at the same cost: how far one lies above the other where both have been measured."""

from collections.abc import Sequence

import numpy as np

from otprune.report.points import Point

Place = tuple[float, float]
"""What was pruned of a cost, and the accuracy, both in percent."""


def placed(points: Sequence[Point], stage: str, kind: str = "flops") -> list[Place]:
    """Where networks lie that have been through a stage.

    >>> placed([], "finetuned")
    []
    """
    there = [point for point in points if point.seeds(stage)]
    return [(point.cost(kind, stage).mean, point.accuracy(stage).mean) for point in there]


def margins(line: Sequence[Place], others: Sequence[Place], least: float = 0.0) -> list[float]:
    """How many points of accuracy a line lies above other networks, at each of them that lies in its range.

    `least` is the share pruned from which on networks count.

    >>> margins([(0, 94), (100, 90)], [(25, 92), (50, 91)], least=50)
    [1.0]
    """
    if len(line) < 2:
        return []
    x, y = zip(*sorted(line), strict=True)
    return [float(np.interp(at, x, y)) - value for at, value in others if max(x[0], least) <= at <= x[-1]]


def side_by_side(ours: Sequence[Place], theirs: Sequence[Place]) -> list[tuple[float, float, float]]:
    """Two lines at every network of either that lies in the range of both: the share pruned, and what each has there.

    >>> side_by_side([(40, 1.0), (80, 3.0)], [(20, 0.0), (60, 4.0)])
    [(40, 1.0, 2.0), (60, 2.0, 4.0)]
    """
    (x, y), (u, v) = (tuple(zip(*sorted(line), strict=True)) for line in (ours, theirs))
    lowest, highest = max(x[0], u[0]), min(x[-1], u[-1])
    places = sorted({at for at, _ in (*ours, *theirs) if lowest <= at <= highest})
    return [(at, float(np.interp(at, x, y)), float(np.interp(at, u, v))) for at in places]


def gaps(points: Sequence[Point], later: str, earlier: str) -> list[float]:
    """How many points of accuracy each network gains from one stage to another, on average over its seeds.

    >>> gaps([], "finetuned", "pruned")
    []
    """
    return [point.gain(later, earlier) for point in points if point.seeds(later, earlier)]
