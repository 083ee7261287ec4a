"""What the benchmarks have in common: two measurements in turn, an interval around a median, the record they write."""

import argparse
import json
import math
from collections.abc import Callable
from statistics import median
from typing import Any

from otprune.files import write_atomically
from otprune.provenance import provenance


def in_turn(first: Callable[[], float], second: Callable[[], float], repeats: int) -> list[tuple[float, float]]:
    """Pairs of measurements; the order alternates, so that neither gains from coming second."""
    return [_pair(first, second, swapped=bool(repeat % 2)) for repeat in range(repeats)]


def _pair(first: Callable[[], float], second: Callable[[], float], swapped: bool) -> tuple[float, float]:
    if swapped:
        of_second = second()
        return first(), of_second
    return first(), second()


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Bounds of the median at about 95 %, by rank, so that a noisy machine shows as a wide interval."""
    ordered, half_width = sorted(values), 0.98 * math.sqrt(len(values))
    lowest = max(0, math.floor(len(values) / 2 - half_width))
    return ordered[lowest], ordered[-1 - lowest]


def ratio_of(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """How many times the second the first is, and between which bounds, of pairs measured in turn.

    >>> ratio_of([(3.0, 2.0)])["ratio"]
    1.5
    """
    ratios = [first / second for first, second in pairs]
    return {"ratio": median(ratios), "ratio_interval": interval_of_median(ratios), "pairs_ms": pairs}


def write_record(benchmark: str, options: argparse.Namespace, results: Any) -> None:
    """Writes results with all that is needed to get them again, where `--json` asks for it."""
    if not options.json:
        return
    record = {
        "benchmark": benchmark,
        "configuration": {name: value for name, value in vars(options).items() if name not in ("json", "seed")},
        "seed": options.seed,
        "results": results,
        "provenance": provenance(),
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.json, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
