"""What can go of a model: found without trying, agreed with by every plan, and told with reasons."""

from __future__ import annotations

import json
import random

import pytest
import torch
from torch import nn

import otprune as ot
from otprune.errors import ModelError
from otprune.inspection import Inspection, inspect
from otprune.models import digits_net, preresnet50
from tests.checking import MaskRule, shrink
from tests.net_layers import conv
from tests.random_nets import RandomChoices, build, example, gammas, random_mask, random_spec
from tests.toy_nets import Depthwise, Grouped, PreActivation, Toy, make
from tests.two_branches import Rest, net
from tests.unchanged import unchanged

IMAGE = torch.zeros(1, 1, 8, 8)


def inspected(toy: type[Toy]) -> Inspection:
    return inspect(make(toy), toy.example())


def can_go(found: Inspection) -> dict[str, int]:
    return {layer.name: layer.can_go for layer in found.layers}


def test_everything_of_a_plain_residual_network_can_go_and_sums_tie_its_batch_norms() -> None:
    found = inspect(digits_net(), IMAGE)
    layers = {layer.name: layer for layer in found.layers}
    assert all(layer.can_go == layer.channels and not layer.reasons for layer in found.layers)
    assert layers["bn"].tied == ["blocks.0.bn2", "blocks.1.bn2"] and layers["blocks.0.bn1"].tied == []
    assert (layers["bn"].branch, layers["blocks.0.bn1"].branch) == (None, "blocks.0.bn2")
    assert found.branches and all(branch.obstacle is None for branch in found.branches)
    assert (found.parameters, found.flops) == (169_834, 4_537_590) and found.frozen == []


@pytest.mark.parametrize("toy", [Depthwise, Grouped, PreActivation])
def test_groups_and_readers_of_their_own_choice_hold_nothing(toy: type[Toy]) -> None:
    found = inspected(toy)
    assert found.can_go == found.channels, str(found)


STAYING: dict[str, tuple[Rest, str]] = {
    "output": (lambda m, a, b: (m.head(a), b), "is an output of the model"),
    "no batch norm": (lambda m, a, b: m.head(m.extra(a) + b), "layer head reads it, and no batch norm makes zero all"),
    "constant": (lambda m, a, b: m.wide(torch.sigmoid(b)) + m.head(a), "layer wide reads the constant"),
    "no rule": (lambda m, a, b: m.head(b.cumsum(1)) + m.other(a), "aten.cumsum.default"),
}


@pytest.mark.parametrize("why", STAYING)
def test_channels_that_cannot_go_are_told_with_the_reason(why: str) -> None:
    rest, reason = STAYING[why]
    found = inspected(net(rest, extra=lambda: conv(2, 6, 6), wide=lambda: conv(2, 6, 4, kernel=3, padding=1)))
    assert can_go(found) == {"bn1": 6, "bn2": 0}
    assert any(text.startswith(reason) for text in found.layers[1].reasons), found.layers[1].reasons
    assert reason in str(found)


def test_a_branch_that_the_models_code_asks_about_stays() -> None:
    found = inspected(net(lambda m, a, b: m.head(a.view(b.shape) + b)))
    stays = {branch.end: branch.obstacle for branch in found.branches}
    assert "has no shape" in (stays["bn2"] or "") and "bn2 (stays)" in str(found)


def test_what_branches_start_from_is_no_branch() -> None:
    found = inspect(digits_net(), IMAGE)
    assert "bn" not in {branch.end for branch in found.branches}


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_drops_what_cannot_go(seed: int) -> None:
    rng = random.Random(seed)
    spec = random_spec(rng)
    model = build(spec)
    limits = can_go(inspect(model, example(spec)))
    shrink(model, random_mask(RandomChoices(rng), gammas(model)))
    plan = ot.plan(model, example(spec), MaskRule(), max_ratio=0.99)  # without whole branches, which free others
    assert all(layer.channels - len(layer.kept) <= limits[layer.name] for layer in plan.layers)


def test_values_that_happen_to_be_zero_make_no_difference() -> None:
    fresh, trained = preresnet50(num_classes=2), preresnet50(num_classes=2)
    for parameter in trained.parameters():
        nn.init.normal_(parameter) if parameter.dim() == 1 else None
    image = torch.zeros(1, 3, 64, 64)
    assert inspect(fresh, image) == inspect(trained, image)


def test_a_rule_adds_thresholds_and_what_it_drops() -> None:
    model = digits_net()
    shrink(model, {"blocks.0.bn1": [0, 3, 5]})
    with unchanged(model):
        found = inspect(model, IMAGE, ot.OptimalThreshold())
    layer = next(layer for layer in found.layers if layer.name == "blocks.0.bn1")
    assert layer.dropped == 3 and layer.threshold == 0.5
    assert "OT would drop 3 of them" in str(found)


def test_the_json_has_what_the_tables_have() -> None:
    found = inspect(digits_net(), IMAGE)
    record = json.loads(found.to_json())
    assert (record["channels"], record["can_go"]) == (found.channels, found.can_go)
    assert [layer["name"] for layer in record["layers"]] == [layer.name for layer in found.layers]


def test_a_model_without_batch_norms_is_refused() -> None:
    with pytest.raises(ModelError, match="has no batch norm with scaling factors"):
        inspect(nn.Sequential(nn.Conv2d(1, 2, 3)), IMAGE)
