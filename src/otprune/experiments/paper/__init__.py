"""The paper's own numbers and settings, table by table: facts to compare with. Accuracies are in percent."""

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """A mean and a standard deviation.

    >>> Spread(93.52, 0.12).mean
    93.52
    """

    mean: float
    std: float


@dataclass(frozen=True)
class Baseline:
    """An unpruned network; `flops` are in units of 10⁶, whatever the table divided by."""

    accuracy: float
    flops: float | None = None
    parameters: float | None = None


@dataclass(frozen=True)
class Pruned:
    """A column of the statistics table: channels layer by layer, their sum, and what the pruned networks come to."""

    layers: tuple[Spread, ...]
    total: Spread
    flops: Spread
    parameters: Spread
    accuracy: Spread


@dataclass(frozen=True)
class Goal:
    """What a network is to reach beyond the paper: an accuracy in percent at no more than this cost.

    `paper` is what the paper's own network comes to, and `settings` are those of the run besides its recipe's.
    """

    model: str
    data: str
    accuracy: float
    flops: float
    paper: Mapping[str, float]
    settings: Mapping[str, Any]
    parameters: float = math.inf


def table(name: str) -> Mapping[str, Any]:
    """A table as its file has it.

    >>> table("points")["headline"]["accuracy"]
    75.99
    """
    return _read(name)


def baselines() -> dict[tuple[str, str], Baseline]:
    """The unpruned networks, by data and model.

    >>> baselines()["cifar10", "vgg14"].accuracy
    93.59
    """
    return {(data, model): _baseline(row) for model, rows in _read("baselines").items() for data, row in rows.items()}


def lambdas() -> dict[tuple[str, str], tuple[float, ...]]:
    """The λ that OT is shown with, by data and model.

    >>> lambdas()["cifar100", "vgg14"]
    (5e-05, 0.0001, 0.0002, 0.0005, 0.001)
    """
    found = _read("lambdas").items()
    return {(data, model): tuple(rows[data]) for model, rows in found for data in rows if data != "slimming"}


def slimming_lam(model: str) -> float:
    """The λ that a model is trained with for Network Slimming.

    >>> slimming_lam("densenet121")
    1e-05
    """
    lam: float = _read("lambdas")[model]["slimming"]
    return lam


def statistics(data: str, rule: str) -> Pruned:
    """A column of the statistics table.

    >>> statistics("cifar10", "ot").accuracy
    Spread(mean=93.52, std=0.12)
    """
    column = _read("statistics")[data][rule]
    layers = tuple(Spread(*pair) for pair in zip(column["layers"], column["layers_std"], strict=True))
    return Pruned(layers, *(Spread(*column[name]) for name in ("total", "flops", "parameters", "accuracy")))


def goals() -> tuple[Goal, ...]:
    """What is to be reached beyond the paper.

    >>> [(goal.model, goal.data, goal.accuracy) for goal in goals()][0]
    ('vgg14', 'cifar10', 94.0)
    """
    return tuple(Goal(**goal) for goal in _read("goals")["goal"])


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / f"{name}.toml").read_text(encoding="utf-8"))


def _baseline(row: Mapping[str, float]) -> Baseline:
    flops = row["flops"] * row.get("flops_unit", 1.0) if "flops" in row else None
    return Baseline(row["accuracy"], flops, row.get("parameters"))
