"""Networks pruned as recorded runs were, with fresh weights."""

import torch
from torch import nn

import otprune as ot
from otprune import models
from otprune.experiments.reproduce.records import Record
from otprune.experiments.reproduce.restored import pruned_alike
from otprune.experiments.stages import totals
from otprune.report.points import CLASSES


def restored(record: Record, round_to: int | None = None) -> nn.Module:
    """The network of a record; that it is the same is told by its cost."""
    name, data = record.experiment.model, record.experiment.data
    model, example = models.build(name, num_classes=CLASSES[data]), torch.zeros(1, *models.image_shape(name))
    small = ot.prune(model, pruned_alike(model, example, record, round_to))
    found = totals(ot.cost(small, example))
    if round_to is None and found != record.results["cost_after"]:
        raise SystemExit(f"{record.place}: pruned to {record.results['cost_after']}, restored as {found}")
    return small
