"""Every recorded network can be made again from its record, whatever rule it was pruned by."""

import pytest
import torch

import otprune as ot
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.restored import pruned_alike
from otprune.experiments.stages import totals
from otprune.models.building import build_model
from tests.long_runs import ROOT

CLASSES = {"cifar10": 10, "cifar100": 100}
RECORDED = [
    one
    for one in Records(ROOT / "results").all.values()
    if one.results.get("layers") and one.experiment.data in CLASSES
]
assert RECORDED


@pytest.mark.parametrize("record", RECORDED, ids=[one.place for one in RECORDED])
def test_a_recorded_network_is_restored(record: Record) -> None:
    model, image = build_model(record.experiment.model, CLASSES[record.experiment.data]), torch.zeros(1, 3, 32, 32)
    small = ot.prune(model, pruned_alike(model, image, record))
    assert totals(ot.cost(small, image)) == record.results["cost_after"]
