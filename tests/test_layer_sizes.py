"""Layers know the sizes they have after pruning, and those that keep their sizes to themselves stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.net_layers import Layer, conv, norm
from tests.pruned_toys import CASES, drawn, planned, pruned
from tests.toy_nets import TOYS, Toy, conv3, make
from tests.two_branches import net, outcome


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("name", TOYS)
def test_layers_know_their_sizes(name: str, share: float) -> None:
    model = make(TOYS[name])
    small = ot.prune(model, planned(model, TOYS[name].example(), drawn(model, share)))
    for module in small.modules():
        if isinstance(module, nn.modules.conv._ConvTransposeNd):
            assert module.weight.shape[:2] == (module.in_channels, module.out_channels // module.groups)
        elif isinstance(module, nn.modules.conv._ConvNd):
            assert module.weight.shape[:2] == (module.out_channels, module.in_channels // module.groups)
            assert module.in_channels % module.groups == module.out_channels % module.groups == 0
        elif isinstance(module, nn.Linear):
            assert module.weight.shape == (module.out_features, module.in_features)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            sizes = {module.num_features, len(module.running_mean), len(module.running_var)}
            assert sizes == {len(module.weight) if module.affine else module.num_features}
            assert module.num_features > 0


def test_groups_go_as_a_whole() -> None:
    _, small, _ = pruned(*CASES["groups"])
    grouped = small.get_submodule("grouped")
    assert (grouped.groups, grouped.in_channels, grouped.out_channels) == (2, 4, 6)
    _, small, _ = pruned(*CASES["depthwise"])
    depthwise = small.get_submodule("depthwise")
    assert (depthwise.groups, depthwise.in_channels, depthwise.out_channels) == (5, 5, 5)


@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1)])
def test_other_layers_with_a_number_of_features_know_it_too(shape: tuple[int, ...]) -> None:
    class Scale(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.num_features = 6
            self.factors = nn.Parameter(torch.ones(shape))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factors

    class Scaled(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.scale, self.head = conv3(3, 6), norm(2, 6), Scale(), conv(2, 6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.scale(self.bn1(self.conv1(x))))

    model, small, plan = pruned(Scaled, {"bn1": [1, 2]})
    assert small.scale.num_features == small.scale.factors.numel() == 4
    assert ot.verify(model, small, plan, Scaled.example()).relative < 1e-9


def test_a_prelu_knows_its_size() -> None:
    class Parametric(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.prelu, self.bn1 = conv3(3, 6), nn.PReLU(6), norm(2, 6)
            self.head = conv(2, 6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.bn1(self.prelu(self.conv1(x))))

    model, small, plan = pruned(Parametric, {"bn1": [1, 2]})
    assert small.prelu.num_parameters == small.prelu.weight.numel() == 4
    assert ot.verify(model, small, plan, Parametric.example()).relative < 1e-9


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6, 1, 1))

    @property
    def num_features(self) -> int:
        return len(self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_module_that_computes_its_number_of_features_is_not_told() -> None:
    toy = net(lambda m, a, b: m.head(m.layer(a)) + m.other(b), layer=Scaled)
    assert outcome(toy, {"bn1": [0, 3]}).removed == 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.gru(x.flatten(2).transpose(1, 2))[0]
        return found.transpose(1, 2).unsqueeze(-1)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        found: Tensor = self.attention(x, x, x)[0]
        return found.transpose(1, 2).unsqueeze(-1)


@pytest.mark.parametrize("layer", [Recurrent, Attending])
def test_layers_that_check_their_own_sizes_keep_them(layer: Callable[[], nn.Module]) -> None:
    toy = net(lambda m, a, b: m.head(m.layer(a)) + m.other(b).mean(), layer=layer)
    model = make(toy)
    shrink(model, {"bn1": [0, 3]})
    plan = ot.plan(model, toy.example(), MaskRule())
    assert any("keeps its sizes to itself" in reason for reason in plan.frozen)
    small = ot.prune(model, plan)
    assert ot.verify(model, small, plan, toy.example()).relative < 1e-9
