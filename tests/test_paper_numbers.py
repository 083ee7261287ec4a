"""The paper's numbers as they are kept: they agree with each other, and with what networks cost here."""

import math

import pytest
import torch
from torch import nn

import otprune as ot
from otprune import models
from otprune.experiments import paper
from otprune.experiments.reproduce.rows import PAIRS, seeds
from otprune.thresholds import GlobalRatio

CLASSES = {"cifar10": 10, "cifar100": 100}
COLUMNS = [(data, rule) for data in CLASSES for rule in ("ot", "ns")]


@pytest.mark.parametrize(("data", "rule"), COLUMNS)
def test_the_channels_of_all_layers_add_up_to_the_total(data: str, rule: str) -> None:
    column = paper.statistics(data, rule)
    assert sum(layer.mean for layer in column.layers) == pytest.approx(column.total.mean, abs=0.11)
    whole = paper.table("statistics")["channels"]
    assert len(column.layers) == len(whole) and sum(whole) == 4224
    assert all(0 < layer.mean <= channels for layer, channels in zip(column.layers, whole, strict=True))


@pytest.mark.parametrize(("data", "rule"), COLUMNS)
def test_a_network_of_the_papers_channels_costs_what_the_paper_says(data: str, rule: str) -> None:
    """Of the mean channels: the mean cost differs a little, since costs are products of channels."""
    column = paper.statistics(data, rule)
    cost = ot.cost(narrow_vgg([round(layer.mean) for layer in column.layers], CLASSES[data]), torch.zeros(1, 3, 32, 32))
    assert cost.flops == pytest.approx(column.flops.mean, rel=0.01)
    assert cost.parameters == pytest.approx(column.parameters.mean, rel=0.02)


def narrow_vgg(kept: list[int], classes: int) -> nn.Module:
    model = models.vgg14(classes)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm, count in zip(norms, kept, strict=True):
        norm.weight.data = (torch.arange(len(norm.weight)) < count).float()
    return ot.prune(model, ot.plan(model, torch.zeros(1, 3, 32, 32), ot.OptimalThreshold()))


@pytest.mark.parametrize("model", ["vgg14", "resnet50", "densenet121"])
@pytest.mark.parametrize("data", CLASSES)
def test_the_unpruned_networks_cost_what_the_paper_says(data: str, model: str) -> None:
    with torch.device("meta"):
        built = models.build(model, CLASSES[data])
        cost = ot.cost(built, torch.zeros(1, 3, 32, 32))
    theirs = paper.baselines()[data, model]
    assert theirs.flops is not None and theirs.parameters is not None
    assert cost.flops == pytest.approx(theirs.flops, rel=0.005 if model == "resnet50" else 1e-4)
    assert cost.parameters == pytest.approx(theirs.parameters, abs=5.001e3)


@pytest.mark.parametrize("data", CLASSES)
def test_slimming_is_asked_to_keep_as_many_channels_as_the_papers(data: str) -> None:
    """Nobody is asked to keep half a channel, nor is a ratio too long to be typed."""
    ratio = seeds(data, "ns")[0].experiment.pruning.ratio
    gammas = torch.linspace(1, 2, 4224)
    threshold = GlobalRatio(ratio).thresholds({"all": gammas}).layers["all"]
    assert int((gammas.double() >= threshold).sum()) == paper.statistics(data, "ns").total.mean
    assert ratio == round(ratio, 4)


def test_every_network_has_a_baseline_and_its_lambdas_in_order() -> None:
    assert {*PAIRS, ("cifar10", "resnet20")} == set(paper.baselines()) == set(paper.lambdas())
    for lams in paper.lambdas().values():
        assert list(lams) == sorted(set(lams)) and all(math.isfinite(lam) and lam > 0 for lam in lams)


def test_the_networks_of_ilsvrc_cost_what_the_paper_says() -> None:
    for name, rows in paper.table("ilsvrc").items():
        with torch.device("meta"):
            cost = ot.cost(models.build(name), torch.zeros(1, 3, 224, 224))
        assert cost.flops == pytest.approx(rows["baseline"]["flops"], rel=2e-3)
        assert rows["ot"]["flops"] < rows["ns"]["flops"] < cost.flops
