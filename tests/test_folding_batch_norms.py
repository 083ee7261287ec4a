"""Batch norms folded into the layers before them: exact, and only where they are all that reads the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrizations

import otprune as ot
from otprune import models
from otprune.deploy.folding import fold_batch_norms
from otprune.inputs import tensors_in
from otprune.surgery import plans_of
from tests.pruned_toys import CASES, any_case, drawn, planned, pruned
from tests.random_nets import randomize
from tests.toy_nets import TOYS, make, values
from tests.unchanged import unchanged

# Toys with batch norms that read something else than a layer's output, or not alone, and how many of those they have.
STAY = {
    "PreActivation": 3,
    "NormalizedShortcut": 2,
    "Dense": 3,
    "TwoReaders": 2,
    "RememberedSizes": 1,
    "SizedByAnother": 1,
    "SharedConv": 2,
    "SharedConvAndNorm": 1,
    "SharedTowers": 1,
    "AuxiliaryHead": 1,
    "NormOnInput": 1,
}
STAY_WHERE_PRUNED = {
    "selections": 2,
    "selections of a residual stream": 3,
    "selections of a concatenation": 3,
    "selections with zeros": 1,
    "zeros for a shortcut": 2,
    "sizes that are remembered": 1,
}


def batch_norms(model: nn.Module) -> int:
    return sum(isinstance(module, _BatchNorm) for module in model.modules())


def folded(model: nn.Module, example: Any) -> nn.Module:
    """The folded model, after a check that it computes the same and that the original is as it was."""
    with unchanged(model):
        small = fold_batch_norms(model, example)
    inputs = example if isinstance(example, tuple) else (example,)
    with torch.no_grad():
        expected, found = (tensors_in(net(*inputs)) for net in (model.eval(), small))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    return small


@pytest.mark.parametrize("name", TOYS)
def test_a_folded_toy_computes_the_same_without_the_batch_norms_that_follow_a_layer(name: str) -> None:
    toy = make(TOYS[name])
    assert batch_norms(folded(toy, toy.example())) == STAY.get(name, 0)


@any_case
def test_a_pruned_toy_is_folded_past_its_selections_and_removed_branches(case: str) -> None:
    model, small, _ = pruned(*CASES[case])
    assert batch_norms(folded(small, model.example())) == STAY_WHERE_PRUNED.get(case, 0)


def test_a_pruned_network_is_folded() -> None:
    model = models.resnet20().double().eval()
    randomize(model, seed=0)
    example = values(2, 3, 16, 16)
    small = ot.prune(model, planned(model, example, drawn(model, 0.3)))
    assert batch_norms(folded(small, example)) == 0 < batch_norms(small)


def test_a_folded_model_runs_in_evaluation_mode_and_has_no_plan() -> None:
    model, small, _ = pruned(*CASES["cut"])
    result = fold_batch_norms(small.train(), model.example())
    assert not any(module.training for module in result.modules())
    assert plans_of(small) and not plans_of(result)


def seen_by(change: Callable[[nn.Sequential], Any]) -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2)).double()
    randomize(net, seed=0)
    change(net)
    return net


class WithLayers(nn.BatchNorm2d):
    """A batch norm with an activation inside, as libraries have them, and ways to do something else besides."""

    def __init__(self, channels: int, way: str = "") -> None:
        super().__init__(channels)
        self.drop, self.act, self.way = nn.Dropout(0.5), nn.SiLU(inplace=True), way

    def forward(self, x: Tensor) -> Tensor:
        given = x * 2 if self.way == "input" else x
        gamma = self.weight * 2 if self.way == "gamma" else self.weight
        variance = self.running_var * 2 if self.way == "variance" else self.running_var
        eps, batch = 1e-3 if self.way == "eps" else self.eps, self.training or self.way == "batch"
        made = F.batch_norm(given, self.running_mean, variance, gamma, self.bias, batch, 0.1, eps)
        made = self.drop(self.act(made)) if self.way == "order" else self.act(self.drop(made))
        return made.add_(1) if self.way == "in place" else made + 1 if self.way == "output" else made


def with_layers(way: str = "") -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), WithLayers(4, way), nn.Conv2d(4, 2, 1)).double().eval()
    randomize(net, seed=0)
    return net


@pytest.mark.parametrize(("way", "order"), [("", ["drop", "act"]), ("order", ["act", "drop"])])
def test_of_a_batch_norm_with_layers_inside_those_stay(way: str, order: list[str]) -> None:
    net = with_layers(way)
    small = folded(net, values(2, 3, 8, 8))
    assert batch_norms(small) == 0
    assert [name for name, _ in small[1].named_children()] == order and small[1].act is not net[1].act


@pytest.mark.parametrize("way", ["input", "gamma", "variance", "eps", "batch", "in place", "output"])
def test_a_batch_norm_that_does_something_else_besides_stays(way: str) -> None:
    assert batch_norms(folded(with_layers(way), values(2, 3, 8, 8))) == 1


class Halved(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, weight / 2, bias)


class Activated(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return F.relu(super().forward(input))


def halve(net: nn.Sequential) -> None:
    conv = Halved(3, 4, 3).double()
    conv.load_state_dict(net[0].state_dict())
    net[0] = conv


def activate(net: nn.Sequential) -> None:
    norm = Activated(4).double()
    norm.load_state_dict(net[1].state_dict())
    net[1] = norm


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda net: net[0].register_forward_hook(lambda m, i, out: out * 2), id="a hook on the layer"),
        pytest.param(lambda net: net[1].register_forward_hook(lambda m, i, out: out * 2), id="a hook on the norm"),
        pytest.param(lambda net: net[1].register_forward_pre_hook(lambda m, i: (i[0] * 2,)), id="one before the norm"),
        pytest.param(lambda net: parametrizations.weight_norm(net[0]), id="a weight that is computed"),
        pytest.param(halve, id="a layer with a way of its own"),
        pytest.param(activate, id="a batch norm with a way of its own"),
    ],
)
def test_what_does_more_than_it_seems_stays(change: Callable[[nn.Sequential], Any]) -> None:
    net = seen_by(change)
    assert batch_norms(folded(net, values(2, 3, 8, 8))) == 1


class Reading(nn.Module):
    """A layer and its batch norm, and something else that reads what the layer reads, has or writes."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.conv, self.bn, self.what = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), what

    def forward(self, x: Tensor) -> Any:
        made = self.conv(x)
        out = self.bn(made)
        if self.what == "weight":
            return out + self.conv.weight.sum()
        if self.what == "gamma":
            return out * self.bn.weight.sum()
        if self.what == "twice":
            return self.bn(made + 1) + out
        return (made, out) if self.what == "output" else out + made if self.what == "sum" else out


@pytest.mark.parametrize(
    ("what", "stay"), [("weight", 1), ("gamma", 1), ("twice", 1), ("output", 1), ("sum", 1), ("", 0)]
)
def test_a_batch_norm_whose_layer_others_see_stays(what: str, stay: int) -> None:
    net = Reading(what).double().eval()
    randomize(net, seed=0)
    assert batch_norms(folded(net, values(2, 3, 8, 8))) == stay


def test_a_batch_norm_without_running_statistics_stays() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).double()
    assert batch_norms(folded(net, values(2, 3, 8, 8))) == 1


def test_channels_along_another_axis_are_not_mistaken() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).double()
    randomize(net, seed=0)
    assert batch_norms(folded(net, values(2, 4, 5))) == 1  # the batch norm looks at the second axis, not at the last
    assert batch_norms(folded(net, values(2, 5))) == 0


def test_a_transposed_convolution_in_groups_is_scaled_group_by_group() -> None:
    net = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), nn.BatchNorm2d(6)).double()
    randomize(net, seed=0)
    assert batch_norms(folded(net, values(2, 4, 5, 5))) == 0


def test_single_precision_loses_nothing_to_the_folding() -> None:
    model = models.digits_net().eval()
    randomize(model, seed=0)
    x = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plain, found, exact = model(x), fold_batch_norms(model, x)(x), model.double()(x.double())
    assert (found - exact).abs().max() <= 2 * (plain - exact).abs().max()
