"""A branch whose last batch norm is not heard in the network as a whole falls silent, wherever it meets the others."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import otprune as ot
from otprune import models
from otprune.experiments.reproduce.records import Records
from tests.checking import TOLERANCE
from tests.html_reports import RESULTS
from tests.net_layers import conv, norm
from tests.random_nets import build, example, random_spec
from tests.test_dead_layers import is_passed
from tests.toy_nets import TOYS, Dense, PreActivation, ResidualIdentity, Toy, make
from tests.two_branches import net

QUIET = 1e-4
SILENT = "not heard in the network as a whole"


def with_quiet(model: nn.Module, *layers: str) -> nn.Module:
    """Scaling factors that lie close together, so that no threshold of their own layer tells them apart."""
    for layer in layers:
        gamma = model.get_parameter(f"{layer}.weight").data
        gamma.copy_(QUIET * torch.linspace(1.0, 1.5, len(gamma)))
    return model


def kept(model: nn.Module, inputs: Any, **limits: Any) -> dict[str, int]:
    return {layer.name: len(layer.kept) for layer in ot.plan(model, inputs, **limits).layers}


def pruned_exactly(model: nn.Module, inputs: Any) -> ot.PruningPlan:
    plan = ot.plan(model, inputs)
    assert ot.verify(model, ot.prune(model, plan), plan, inputs).relative < TOLERANCE
    return plan


def with_quiet_readers(model: nn.Module, channels: slice, *layers: str) -> nn.Module:
    for layer in layers:
        model.get_parameter(f"{layer}.weight").data[channels] = QUIET
    return model


def test_a_quiet_layer_of_a_dense_block_keeps_one_channel_and_says_why() -> None:
    model = with_quiet_readers(with_quiet(make(Dense), "bn2"), slice(7, 10), "bn_final")
    plan = pruned_exactly(model, Dense.example())
    (silent,) = [layer for layer in plan.layers if layer.note.startswith(SILENT)]
    assert (silent.name, len(silent.kept)) == ("bn2", 1)


def test_one_that_a_reader_makes_louder_stays() -> None:
    """A batch norm divides each channel by its own deviation, however small that is."""
    model = with_quiet_readers(with_quiet(make(Dense), "bn2"), slice(7, 9), "bn_final")
    (layer,) = [layer for layer in ot.plan(model, Dense.example()).layers if layer.name == "bn2"]
    assert (len(layer.kept), layer.note) == (7, "quiet in the network as a whole, but what reads it may make it loud")


def test_nor_does_what_feeds_one_that_is_made_louder_fall_silent() -> None:
    model, image = models.build("densenet121", num_classes=10).double(), torch.randn(1, 3, 32, 32).double()
    layer = "features.denseblock4.denselayer3"
    found = kept(with_quiet(model, f"{layer}.norm1", f"{layer}.norm2"), image)
    assert (found[f"{layer}.norm1"], found[f"{layer}.norm2"]) == (576, 128)


@pytest.mark.parametrize(
    ("quiet", "zero", "left"),
    [(("norm2",), (), 576), (("norm1", "norm2"), (), 1), (("norm1",), (), 576), (("norm1",), ("norm2",), 1)],
)
def test_what_only_feeds_it_falls_silent_with_it_if_it_is_quiet_too(
    quiet: tuple[str, ...], zero: tuple[str, ...], left: int
) -> None:
    model, image = models.build("densenet121", num_classes=10).double(), torch.randn(1, 3, 32, 32).double()
    block = "features.denseblock4"
    with_quiet(model, *(f"{block}.denselayer3.{name}" for name in quiet))
    with_quiet_readers(
        model, slice(576, 608), *(f"{block}.denselayer{n}.norm1" for n in range(4, 17)), "features.norm5"
    )
    for name in zero:
        model.get_parameter(f"{block}.denselayer3.{name}.weight").data.zero_()
    found = kept(model, image)
    assert found[f"{block}.denselayer3.norm1"] == left
    assert found[f"{block}.denselayer3.norm2"] == (1 if "norm2" in quiet + zero else 128)
    assert found[f"{block}.denselayer2.norm2"] == 128


@pytest.mark.parametrize("meet", [lambda one, two: torch.cat([one, two], 1), lambda one, two: torch.cat([two, one], 1)])
def test_so_does_one_of_parallel_convolutions(meet: Any) -> None:
    toy = net(lambda self, one, two: self.both(torch.relu(meet(one, two))), both=lambda: conv(2, 12, 4, bias=True))
    plan = pruned_exactly(with_quiet(make(toy), "bn1"), toy.example())
    assert {layer.name: len(layer.kept) for layer in plan.layers} == {"bn1": 1, "bn2": 6}


def test_a_branch_that_a_convolution_ends_goes_as_a_whole_where_it_is_added() -> None:
    model = models.build("preresnet50", num_classes=10).double().eval()
    with_quiet(model, "blocks.1.bn3")
    plan = pruned_exactly(model, torch.randn(1, 3, 64, 64).double())
    assert plan.removed == [f"blocks.1.{name}{number}" for number in (1, 2, 3) for name in ("bn", "conv")]


def test_a_convolution_with_a_bias_adds_more_than_nothing() -> None:
    toy = net(lambda self, one, two: self.head(torch.relu(one)) + self.other(torch.relu(two)))
    plan = pruned_exactly(with_quiet(make(toy), "bn1"), toy.example())
    assert (plan.removed, len(plan.layers[0].kept)) == ([], 1)


def test_a_quiet_layer_that_another_one_makes_louder_stays() -> None:
    """What the next batch norm reads it divides by its deviation, however small that is."""
    found = kept(with_quiet(make(ResidualIdentity), "bn2"), ResidualIdentity.example())
    assert found["bn2"] == make(ResidualIdentity).bn2.num_features  # type: ignore[union-attr]


def test_a_quiet_layer_that_all_goes_through_stays() -> None:
    model = nn.Sequential(conv(2, 3, 6), norm(2, 6), nn.ReLU(), conv(2, 6, 6), norm(2, 6), nn.ReLU(), conv(2, 6, 2))
    assert kept(with_quiet(model, "1"), torch.randn(1, 3, 8, 8)) == {"1": 6, "4": 6}


def test_parts_of_which_none_is_louder_stay() -> None:
    """The batch norm behind them goes by what they are to one another."""
    toy = net(
        lambda self, one, two: self.last(self.loud(self.both(torch.cat([one, two], 1)))),
        both=lambda: conv(2, 12, 4),
        loud=lambda: norm(2, 4),
        last=lambda: conv(2, 4, 2),
    )
    model = with_quiet(make(toy), "bn1", "bn2")
    model.bn2.weight.data.mul_(0.01)  # type: ignore[union-attr,operator]
    assert kept(model, toy.example()) == {"bn1": 6, "bn2": 6, "loud": 4}


def test_an_output_that_nothing_else_reaches_keeps_its_branches() -> None:
    """Though the input reaches another one."""

    class TwoOutputs(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = conv(2, 3, 6), norm(2, 6), conv(2, 3, 6), norm(2, 6)
            self.head, self.conv3, self.loud, self.other = conv(2, 12, 4), conv(2, 3, 4), norm(2, 4), conv(2, 4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            parts = torch.cat([self.bn1(self.conv1(x)), self.bn2(self.conv2(x))], 1)
            return self.head(torch.relu(parts)), self.other(self.loud(self.conv3(x)))

    assert kept(with_quiet(make(TwoOutputs), "bn1", "bn2"), TwoOutputs.example()) == {"bn1": 6, "bn2": 6, "loud": 4}


def test_a_shared_batch_norm_that_feeds_something_loud_too_stays() -> None:
    class Shared(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2, self.shared = conv(2, 3, 6), conv(2, 3, 6), norm(2, 6)
            self.conv3, self.loud, self.conv4, self.quiet = conv(2, 6, 4), norm(2, 4), conv(2, 6, 4), norm(2, 4)
            self.head = conv(2, 8, 2, bias=True)

        def forward(self, x: Tensor) -> Tensor:
            one = self.loud(self.conv3(torch.relu(self.shared(self.conv1(x)))))
            two = self.quiet(self.conv4(torch.relu(self.shared(self.conv2(x)))))
            return self.head(torch.cat([one, two], 1))

    found = kept(with_quiet(make(Shared), "shared", "quiet"), Shared.example())
    assert (found["shared"], found["quiet"]) == (6, 1)


def test_one_that_opens_a_gate_stays() -> None:
    toy = net(lambda self, one, two: self.last(self.head(one * torch.sigmoid(two))), last=lambda: norm(2, 4))
    assert kept(with_quiet(make(toy), "bn2"), toy.example())["bn2"] == 6


@pytest.mark.parametrize(
    ("limits", "left"), [({"ignore": ["bn2"]}, 7), ({"max_ratio": 0.5}, 7), ({"rule": ot.GlobalRatio(0.0)}, 7)]
)
def test_limits_and_rules_without_branches_leave_it_alone(limits: dict[str, Any], left: int) -> None:
    model = with_quiet_readers(with_quiet(make(Dense), "bn2"), slice(7, 10), "bn_final")
    assert kept(model, Dense.example(), **limits)["bn2"] == left


def every_layer() -> Iterator[tuple[type[Toy], str]]:
    for toy in TOYS.values():
        norms = [name for name, one in make(toy).named_modules() if isinstance(one, nn.BatchNorm2d) and one.affine]
        if len(norms) > 1:
            yield from ((toy, name) for name in norms)


@pytest.mark.parametrize(("toy", "layer"), list(every_layer()))
def test_every_quiet_layer_of_every_toy_is_pruned_exactly(toy: type[Toy], layer: str) -> None:
    pruned_exactly(with_quiet(make(toy), layer), toy.example())


def drawn(number: int) -> tuple[nn.Module, Any]:
    """A random network with one to three quiet layers."""
    rng = random.Random(number)
    spec = random_spec(rng)
    model, inputs = build(spec).eval(), example(spec)
    norms = [name for name, one in model.named_modules() if isinstance(one, _BatchNorm) and one.affine]
    return with_quiet(model, *rng.sample(norms, min(len(norms) - 1, rng.choice([1, 2, 3])))), inputs


@pytest.mark.parametrize("number", range(60))
def test_quiet_layers_of_random_networks_are_pruned_exactly(number: int) -> None:
    model, inputs = drawn(number)
    if is_passed(model, inputs):  # else there is nothing to compare
        pruned_exactly(model, inputs)


def test_some_of_them_have_branches_that_fall_silent_and_some_lose_them_as_a_whole() -> None:
    plans = [ot.plan(*drawn(number)) for number in range(60)]
    assert any(layer.note.startswith(SILENT) for plan in plans for layer in plan.layers)
    assert any(plan.removed for plan in plans)


def test_dead_layers_of_a_trained_densenet_cost_next_to_nothing() -> None:
    """With the scaling factors of the recorded run, three of whose dense layers have none above 1e-6."""
    record = Records(RESULTS).at("cifar100/densenet121/lam2e-4-seed0")
    assert record is not None
    model, image = models.build("densenet121", num_classes=100).double(), torch.randn(1, 3, 32, 32).double()
    for name, gamma in record.gammas.items():
        model.get_parameter(f"{name}.weight").data.copy_(torch.tensor(gamma))
    dead = {name for name, gamma in record.gammas.items() if max(map(abs, gamma)) < 1e-6}
    found = kept(model, image)
    assert len(dead) == 6
    assert {found[name] for name in dead} == {1}


def test_pre_activation_toys_lose_the_branch() -> None:
    norms = [name for name, one in make(PreActivation).named_modules() if isinstance(one, nn.BatchNorm2d)]
    assert any(ot.plan(with_quiet(make(PreActivation), name), PreActivation.example()).removed for name in norms)
