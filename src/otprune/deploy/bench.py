"""Latencies of several models in several runtimes, each compared with its original in the same measurement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from otprune.deploy.packages import versions
from otprune.deploy.pinning import pinned
from otprune.deploy.runtimes import PACKAGES, Device, Runtime, require
from otprune.deploy.subjects import Subject
from otprune.deploy.timing import TURN, WARM_UP, Latency, interleaved, summarized
from otprune.errors import DeployError
from otprune.provenance import provenance

PRECISION = {"cpu": "float32", "cuda": "float32, in convolutions TF32 where the GPU has it"}


@dataclass(frozen=True)
class Settings:
    """How to measure.

    >>> Settings(("torch",)).batch
    1
    """

    runtimes: tuple[Runtime, ...]
    device: Device = "cpu"
    batch: int = 1
    iters: int = 10_000
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("batch", "iters", "threads"):
            if getattr(self, name) < 1:
                raise DeployError(f"{name} must be at least 1, not {getattr(self, name)}")
        for runtime in self.runtimes:
            require(runtime, self.device)


def bench(
    timed: Sequence[Subject], settings: Settings, moved: Callable[[int], None] = lambda runs: None
) -> dict[str, Any]:
    """Measure all in every runtime; the record has settings, costs, latencies in milliseconds, versions and hardware.

    The models of a runtime take turns; `moved` is told after each how many runs it had.

    >>> from torch import nn
    >>> subject = Subject("net", nn.Conv2d(1, 1, 1), (1, 8, 8))
    >>> record = bench([subject], Settings(("torch",), iters=10))
    >>> record["latencies"]["torch"]["net"]["runs"]
    10
    """
    _require_runtimes(timed, settings)
    made_with, latencies = provenance(torch.device(settings.device)), {}
    for runtime in settings.runtimes:
        latencies[runtime] = _in_one(runtime, timed, settings, moved)
    return {
        "settings": asdict(settings) | {"warm_up": WARM_UP, "turn": TURN, "precision": PRECISION[settings.device]},
        "models": {subject.name: _described(subject) for subject in timed},
        "latencies": latencies,
        "versions": versions(PACKAGES),
        "provenance": made_with | {"threads": settings.threads},
    }


def runs_in(timed: Sequence[Subject], settings: Settings) -> int:
    """How many runs there will be, those of the warm-up not counted.

    >>> from torch import nn
    >>> runs_in([Subject("net", nn.ReLU(), (1, 8, 8))], Settings(("torch", "openvino"), iters=10))
    20
    """
    return settings.iters * sum(len(_fitting(timed, runtime)) for runtime in settings.runtimes)


def compared(found: Mapping[str, Latency], originals: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """Latencies as JSON has them, with how many times as fast as its original each is: of means, and of medians.

    >>> latencies = {"big": Latency(4.0, 0.1, 3.0, 5.0, 10), "small": Latency(2.0, 0.1, 2.0, 2.0, 10)}
    >>> compared(latencies, {"big": None, "small": "big"})["small"]
    {'mean': 2.0, 'sd': 0.1, 'p50': 2.0, 'p99': 2.0, 'runs': 10, 'times_faster': 2.0, 'times_faster_p50': 1.5}
    """
    return {name: own.to_dict() | _ratios(own, found.get(originals[name] or "")) for name, own in found.items()}


def _described(subject: Subject) -> dict[str, Any]:
    run = None if subject.run is None else str(subject.run)
    return {"original": subject.original, "run": run, **subject.cost()}


def _ratios(own: Latency, original: Latency | None) -> dict[str, float]:
    if original is None:
        return {}
    return {"times_faster": original.mean / own.mean, "times_faster_p50": original.p50 / own.p50}


def _in_one(
    runtime: Runtime, timed: Sequence[Subject], settings: Settings, moved: Callable[[int], None]
) -> dict[str, dict[str, Any]]:
    fitting = _fitting(timed, runtime)
    with pinned(settings.threads):
        ready = {one.name: one.ready(runtime, settings.device, settings.threads, settings.batch) for one in fitting}
        seconds = interleaved({name: one.seconds for name, one in ready.items()}, settings.iters, moved=moved)
    found = {name: summarized(those) for name, those in seconds.items()}
    return compared(found, {subject.name: subject.original for subject in fitting})


def _require_runtimes(timed: Sequence[Subject], settings: Settings) -> None:
    for subject in timed:
        if not set(subject.runtimes) & set(settings.runtimes):
            raise DeployError(
                f"{subject.name}: runs in {' or '.join(subject.runtimes)}, not in {', '.join(settings.runtimes)}"
            )


def _fitting(timed: Sequence[Subject], runtime: Runtime) -> list[Subject]:
    """A file runs in some of them only."""
    return [subject for subject in timed if runtime in subject.runtimes]
