"""Every recorded network can be made again from its record, whatever rule it was pruned by."""

from dataclasses import asdict, replace

import pytest
import torch

import otprune as ot
from otprune import models
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.restored import pruned_alike
from otprune.experiments.stages import totals
from otprune.models.building import build_model
from otprune.report.points import CLASSES
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


def test_what_rounding_keeps_is_kept_again() -> None:
    """In sums, which of the negligible channels stay decides how many do."""
    record = next(one for one in RECORDED if one.experiment.model == "resnet20" and one.gammas)
    image = torch.zeros(1, *models.image_shape("resnet20"))
    model = models.resnet20()
    for name, gamma in record.gammas.items():
        model.get_submodule(name).get_parameter("weight").data.copy_(torch.tensor(gamma))
    plan = ot.plan(model, image, record.experiment.pruning.thresholds(), round_to=8)
    rounded = replace(record.experiment, pruning=replace(record.experiment.pruning, round_to=8))
    layers = [asdict(layer) | {"kept": len(layer.kept)} for layer in plan.layers]
    made = Record("made", rounded, {"results": {"layers": layers, "gammas": record.gammas}})
    again = pruned_alike(fresh := models.resnet20(), image, made)
    assert [len(layer.kept) for layer in again.layers] == [layer["kept"] for layer in layers]
    assert totals(ot.cost(ot.prune(fresh, again), image)) == totals(ot.cost(ot.prune(model, plan), image))
    assert again != pruned_alike(models.resnet20(), image, replace(made, experiment=record.experiment))
