"""Every recorded network can be made again from its record, whatever rule it was pruned by."""

import pytest
import torch

import otprune as ot
from otprune import models
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.restored import pruned_alike
from otprune.experiments.stages import totals
from otprune.models.building import build_model
from otprune.report.html.subjects import CLASSES
from tests.long_runs import ROOT

RECORDED = [
    one
    for one in Records(ROOT / "results").all.values()
    if one.results.get("layers") and one.experiment.data in CLASSES
]
assert RECORDED


@pytest.mark.parametrize("record", RECORDED, ids=[one.place for one in RECORDED])
def test_a_recorded_network_is_restored(record: Record) -> None:
    name, data = record.experiment.model, record.experiment.data
    model, image = build_model(name, CLASSES[data]), torch.zeros(1, *models.image_shape(name))
    small = ot.prune(model, pruned_alike(model, image, record))
    assert totals(ot.cost(small, image)) == record.results["cost_after"]
