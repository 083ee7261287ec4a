"""How long models take, one input at a time: warmed up, in turn with each other, so that noise hits all alike."""

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from otprune.errors import DeployError

Timed = Callable[[], float]
"""Runs a model once and returns the seconds that it took."""

WARM_UP = 20
# A model's turn is one run that does not count, which brings its weights back into the caches, and so many that do.
TURN = 10


@dataclass(frozen=True)
class Latency:
    """The latencies of one model, in milliseconds.

    >>> Latency(mean=1.5, sd=0.5, p50=1.4, p99=2.0, runs=100).to_dict()["p99"]
    2.0
    """

    mean: float
    sd: float
    p50: float
    p99: float
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def summarized(seconds: Sequence[float]) -> Latency:
    """Mean, standard deviation and percentiles of what was measured.

    >>> summarized([0.001, 0.002, 0.003])
    Latency(mean=2.0, sd=1.0, p50=2.0, p99=2.98, runs=3)
    """
    if not seconds:
        raise DeployError("nothing was measured, so there is no latency: measure at least once")
    ms = np.array(seconds) * 1e3
    sd = float(ms.std(ddof=1)) if len(ms) > 1 else 0.0
    p50, p99 = (float(value) for value in np.percentile(ms, (50, 99)))
    return Latency(float(ms.mean()), sd, p50, p99, len(ms))


def interleaved(
    models: Mapping[str, Timed],
    iters: int,
    warm_up: int = WARM_UP,
    moved: Callable[[int], None] = lambda runs: None,
) -> dict[str, list[float]]:
    """The seconds of `iters` runs of every model, after `warm_up` runs of each.

    The models take turns, in an order that is drawn afresh every round, always the same draws. `moved` is told after
    each turn how many runs it had.

    >>> measured = interleaved({"a": lambda: 0.5, "b": lambda: 0.25}, iters=2, warm_up=1)
    >>> measured
    {'a': [0.5, 0.5], 'b': [0.25, 0.25]}
    """
    if iters < 1:
        raise DeployError(f"iters is {iters}: time at least one run")
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for timed in models.values():
        _runs(timed, warm_up)
    with _no_collection():
        for name, count in turns(list(models), iters):
            models[name]()
            seconds[name] += _runs(models[name], count)
            moved(count)
    return seconds


def turns(names: Sequence[str], iters: int, turn: int = TURN) -> Iterator[tuple[str, int]]:
    """Whose turn it is, and for how many runs.

    >>> sorted(turns(["a", "b"], iters=12))
    [('a', 2), ('a', 10), ('b', 2), ('b', 10)]
    """
    order, draws = list(names), random.Random(0)
    for start in range(0, iters, turn):
        draws.shuffle(order)
        for name in order:
            yield name, min(turn, iters - start)


def on_the_cpu(run: Callable[[], object]) -> float:
    """The seconds that a run took which is over when it returns.

    >>> on_the_cpu(lambda: None) < 1
    True
    """
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def on_the_gpu(run: Callable[[], object]) -> float:
    """The seconds that a run took on a GPU that had nothing else to do, from its launch to its end, by events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3


def _runs(timed: Timed, count: int) -> list[float]:
    return [timed() for _ in range(count)]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage is collected before, and not on anyone's time."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
