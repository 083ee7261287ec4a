"""A batch norm whose scaling factors are all zero is refused where nothing gets past it, and pruned elsewhere."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

import otprune as ot
from otprune import models
from otprune.errors import ThresholdError
from tests.net_layers import norm
from tests.random_nets import build, example, random_spec
from tests.toy_nets import TOYS, Dense, ResidualIdentity, Toy, make
from tests.two_branches import net

PAST_IT_IN_TRAINING = {("AuxiliaryHead", "bn2")}


def every_layer() -> Iterator[tuple[str, str]]:
    """Of networks with at least two."""
    for name, toy in TOYS.items():
        norms = {layer: one for layer, one in make(toy).named_modules() if isinstance(one, nn.BatchNorm2d)}
        scaled = [layer for layer, one in norms.items() if one.affine]
        if len(scaled) > 1:
            yield from ((name, layer) for layer in scaled if (name, layer) not in PAST_IT_IN_TRAINING)


def depends_on_its_input(model: nn.Module, inputs: tuple[Any, ...]) -> bool:
    """Whether an output changes with the inputs."""
    other = pytree.tree_map_only(Tensor, lambda t: t.flip(0) * 1.7 + 0.3, inputs)
    with torch.no_grad():
        outs = pytree.tree_leaves(model(*inputs)), pytree.tree_leaves(model(*other))
    return not all(torch.equal(one, two) for one, two in zip(*outs, strict=True))


def with_dead(model: nn.Module, *layers: str) -> nn.Module:
    for layer in layers:
        model.get_parameter(f"{layer}.weight").data.zero_()
    return model


@pytest.mark.parametrize(("toy", "layer"), list(every_layer()))
def test_refused_if_and_only_if_nothing_gets_past_it(toy: str, layer: str) -> None:
    model, inputs = with_dead(make(TOYS[toy]), layer), TOYS[toy].example()
    if depends_on_its_input(model, inputs):
        plan = ot.plan(model, inputs)
        assert ot.verify(model, ot.prune(model, plan), plan, inputs).relative < 1e-9
    else:
        with pytest.raises(ThresholdError, match=f"layer {layer}: all scaling factors are zero, and nothing"):
            ot.plan(model, inputs)


@pytest.mark.parametrize("number", range(60))
def test_no_random_network_is_refused_that_something_gets_through(number: int) -> None:
    rng = random.Random(number)
    spec = random_spec(rng)
    model, inputs = build(spec).eval(), example(spec)
    norms = [name for name, one in model.named_modules() if isinstance(one, _BatchNorm) and one.affine]
    with_dead(model, *rng.sample(norms, min(len(norms) - 1, rng.choice([1, 2]))))
    if depends_on_its_input(model, inputs):
        plan = ot.plan(model, inputs)
        assert ot.verify(model, ot.prune(model, plan), plan, inputs).relative < 1e-9


@pytest.mark.parametrize(("toy", "layer"), [(Dense, "bn2"), (ResidualIdentity, "bn2")])
def test_one_channel_is_left_of_it(toy: type[Toy], layer: str) -> None:
    model = with_dead(make(toy), layer)
    kept = {one.name: one.kept for one in ot.plan(model, toy.example()).layers}
    assert len(kept[layer]) == 1


def test_refused_where_the_only_way_past_one_leads_through_another() -> None:
    toy = net(lambda self, one, two: self.last(self.head(one) + self.other(two)), last=lambda: norm(2, 4))
    one = with_dead(make(toy), "bn1")
    plan = ot.plan(one, toy.example())
    assert ot.verify(one, ot.prune(one, plan), plan, toy.example()).relative < 1e-9
    with pytest.raises(ThresholdError, match="layer bn1: all scaling factors are zero, and nothing"):
        ot.plan(with_dead(one, "bn2"), toy.example())


def test_a_layer_of_densenet_may_be_dead_and_costs_next_to_nothing_then() -> None:
    """A strong penalty makes some so: what is around it is trained on, and counted."""
    model, image = models.build("densenet121", num_classes=10).double(), torch.randn(1, 3, 32, 32).double()
    block = "features.denseblock3.denselayer19"
    with_dead(model, f"{block}.norm1", f"{block}.norm2")
    plan = ot.plan(model, image)
    small = ot.prune(model, plan)
    assert ot.verify(model, small, plan, image).relative < 1e-9
    assert sum(p.numel() for p in small.get_submodule(block).parameters()) < 0.02 * sum(
        p.numel() for p in model.get_submodule(block).parameters()
    )
