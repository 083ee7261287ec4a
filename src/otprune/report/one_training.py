"""What OT and Network Slimming would each leave of one and the same training, which its scaling factors tell."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import otprune as ot
from otprune import models
from otprune.errors import TrainingError
from otprune.experiments.reproduce.records import WAY_OUT, Record, Records
from otprune.experiments.reproduce.rows import row, seeds, slimming
from otprune.report.columns import MODEL
from otprune.report.points import CLASSES

ROW = "one-training"
Rules = ot.OptimalThreshold | ot.GlobalRatio
Gammas = tuple[tuple[str, tuple[float, ...]], ...]
"""The scaling factors of each layer, after its name."""


@dataclass(frozen=True)
class Trained:
    """A training of VGG-14: its data, its λ, and the scaling factors that it came to, layer by layer.

    >>> apart = (("features.1", (0.5, 1e-7)), ("features.4", (0.4, 0.3, 1e-6)))
    >>> Trained("cifar10", 1e-4, apart).shared
    100.0
    """

    data: str
    lam: float
    gammas: Gammas

    @property
    def shared(self) -> float:
        """How many of the channels that OT keeps NS would keep, too, if it kept as many; in percent."""
        channels = torch.cat(self._magnitudes)
        ours = torch.cat([layer >= ot.optimal_threshold(layer) for layer in self._magnitudes])
        least = channels.topk(int(ours.sum())).values[-1]
        return 100 * int((ours & (channels >= least)).sum()) / int(ours.sum())

    @property
    def taken(self) -> float:
        """The FLOPs that OT takes, in percent."""
        return self._pruned_by(ot.OptimalThreshold())

    @property
    def taken_as_narrow(self) -> float:
        """The FLOPs that NS takes where it keeps as many channels as OT, in percent."""
        negligible = sum(int((layer < ot.optimal_threshold(layer)).sum()) for layer in self._magnitudes)
        return self._pruned_by(_taking(negligible, sum(map(len, self._magnitudes))))

    @property
    def limit(self) -> float:
        """The most FLOPs that NS can take before a layer loses its last channel, in percent."""
        weakest = min(layer.max() for layer in self._magnitudes)
        channels = torch.cat(self._magnitudes)
        return self._pruned_by(_taking(int((channels < weakest).sum()), len(channels)))

    @property
    def _magnitudes(self) -> list[torch.Tensor]:
        return [torch.tensor(values, dtype=torch.float64).abs() for _, values in self.gammas]

    def _pruned_by(self, rule: Rules) -> float:
        return _pruned_flops(self.data, self.gammas, rule)


def trainings(records: Records, data: str) -> list[Trained]:
    """All by the paper's recipe whose γ are recorded, once each, by whatever rule they were pruned; by λ.

    >>> from pathlib import Path
    >>> trainings(Records(Path("nowhere")), "cifar10")
    []
    """
    found = (trained for record in _of_any_rule(records, data) if (trained := of_record(record)))
    return sorted(dict.fromkeys(found), key=lambda one: one.lam)


def of_record(record: Record) -> Trained | None:
    """The training that a record is of; older ones have no γ.

    >>> from otprune.experiments.experiment import Experiment
    >>> of_record(Record("", Experiment("vgg14", "cifar10"), {}))
    """
    if not record.gammas:
        return None
    model, _ = _network(record.experiment.data)
    expected = {name: module.num_features for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    if {name: len(values) for name, values in record.gammas.items()} != expected:
        raise TrainingError(f"{record.place}: its γ are not those of the batch norms of {MODEL}. {WAY_OUT}")
    return Trained(record.experiment.data, record.experiment.training.lam, _frozen(record.gammas))


def _of_any_rule(records: Records, data: str) -> Iterator[Record]:
    """What OT pruned at every λ that a figure is of, what NS pruned, and what was pruned at shifted thresholds."""
    by_ot = [needed for name in (ROW, "lambda-distributions") for needed in row(name).needs]
    by_ns = [*slimming(data, MODEL), seeds(data, "ns")[0]]
    for needed in chain(by_ot, by_ns):
        if needed.experiment.data == data:
            yield from records.of_any_seed(needed)
    shifted = row("threshold-demo").needs[0]
    if shifted.experiment.data == data and (record := records.find(shifted)):
        yield record


def _taking(channels: int, of: int) -> ot.GlobalRatio:
    """The rule by which NS takes so many channels."""
    return ot.GlobalRatio((channels + 0.5) / of)  # half of one more, since the ratio is rounded down to whole channels


def _frozen(gammas: Mapping[str, list[float]]) -> Gammas:
    return tuple((name, tuple(values)) for name, values in gammas.items())


@functools.cache
def _pruned_flops(data: str, gammas: Gammas, rule: Rules) -> float:
    model, example = _network(data)
    for name, values in gammas:
        model.get_submodule(name).get_parameter("weight").data.copy_(torch.tensor(values))
    small = ot.prune(model, ot.plan(model, example, rule))
    return 100 * (1 - ot.cost(small, example).flops / ot.cost(model, example).flops)


@functools.cache
def _network(data: str) -> tuple[nn.Module, Any]:
    """Of which the scaling factors alone matter."""
    return models.build(MODEL, CLASSES[data]), torch.zeros(1, *models.image_shape(MODEL))
