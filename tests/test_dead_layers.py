"""A batch norm whose scaling factors are all zero is refused where nothing gets past it, and pruned elsewhere."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

import otprune as ot
from otprune import models
from otprune.errors import ThresholdError
from tests.checking import TOLERANCE
from tests.net_layers import norm
from tests.random_nets import build, example, random_spec
from tests.refusals import refused
from tests.toy_nets import TOYS, Dense, ResidualIdentity, Toy, make
from tests.two_branches import net

PAST_IT_IN_TRAINING = ("AuxiliaryHead", "bn2")  # through a head that is not there in evaluation


def every_layer() -> Iterator[tuple[str, str]]:
    """Of networks with at least two."""
    for name, toy in TOYS.items():
        norms = {layer: one for layer, one in make(toy).named_modules() if isinstance(one, nn.BatchNorm2d)}
        scaled = [layer for layer, one in norms.items() if one.affine]
        if len(scaled) > 1:
            yield from ((name, layer) for layer in scaled if (name, layer) != PAST_IT_IN_TRAINING)


def is_passed(model: nn.Module, inputs: tuple[Any, ...], *dead: str) -> bool:
    """Whether an output changes with the inputs when all that the dead layers write is zero."""
    model = copy.deepcopy(model)
    for layer in dead:
        model.get_parameter(f"{layer}.bias").data.zero_()
    other = pytree.tree_map_only(Tensor, lambda t: t.flip(0) * 1.7 + 0.3, inputs)
    with torch.no_grad():
        outs = pytree.tree_leaves(model(*inputs)), pytree.tree_leaves(model(*other))
    return not all(torch.equal(one, two) for one, two in zip(*outs, strict=True))


def with_dead(model: nn.Module, *layers: str) -> nn.Module:
    for layer in layers:
        model.get_parameter(f"{layer}.weight").data.zero_()
    return model


def pruned_exactly(model: nn.Module, inputs: Any) -> nn.Module:
    plan = ot.plan(model, inputs)
    small = ot.prune(model, plan)
    assert ot.verify(model, small, plan, inputs).relative < TOLERANCE
    return small


@pytest.mark.parametrize(("toy", "layer"), list(every_layer()))
def test_refused_if_and_only_if_nothing_gets_past_it(toy: str, layer: str) -> None:
    model, inputs = with_dead(make(TOYS[toy]), layer), TOYS[toy].example()
    if is_passed(model, inputs, layer):
        pruned_exactly(model, inputs)
    else:
        with pytest.raises(ThresholdError, match=f"layer {layer}: all scaling factors are zero, and nothing"):
            ot.plan(model, inputs)


@pytest.mark.parametrize("number", range(60))
def test_no_random_network_is_refused_that_something_gets_through(number: int) -> None:
    rng = random.Random(number)
    spec = random_spec(rng)
    model, inputs = build(spec).eval(), example(spec)
    norms = [name for name, one in model.named_modules() if isinstance(one, _BatchNorm) and one.affine]
    dead = rng.sample(norms, min(len(norms) - 1, rng.choice([1, 2])))
    with_dead(model, *dead)
    if is_passed(model, inputs, *dead):
        pruned_exactly(model, inputs)


@pytest.mark.parametrize(("toy", "layer"), [(Dense, "bn2"), (ResidualIdentity, "bn2")])
def test_one_channel_is_left_of_it(toy: type[Toy], layer: str) -> None:
    model = with_dead(make(toy), layer)
    kept = {one.name: one.kept for one in ot.plan(model, toy.example()).layers}
    assert len(kept[layer]) == 1


def test_refused_where_the_only_way_past_one_leads_through_another() -> None:
    toy = net(lambda self, one, two: self.last(self.head(one) + self.other(two)), last=lambda: norm(2, 4))
    one = with_dead(make(toy), "bn1")
    pruned_exactly(one, toy.example())
    with pytest.raises(ThresholdError, match="layer bn1, bn2: all scaling factors are zero, and nothing"):
        ot.plan(with_dead(one, "bn2"), toy.example())


def test_the_layer_that_nothing_gets_past_is_named() -> None:
    """Not the other one, which may be dead."""
    model = with_dead(make(Dense), "bn2", "bn_final")
    refused(
        ThresholdError,
        "layer bn_final: ",
        'ignore=["bn_final"]',
        models=(model,),
        call=lambda: ot.plan(model, Dense.example()),
    )
    assert ot.plan(model, Dense.example(), ignore=["bn_final"]).layers


def test_a_dead_layer_that_only_opens_a_gate_lets_nothing_through() -> None:
    """Its shift times a gate would: but that is dropped with its channels."""
    toy = net(lambda self, one, two: self.last(self.head(one * torch.sigmoid(two))), last=lambda: norm(2, 4))
    model = with_dead(make(toy), "bn1")
    with pytest.raises(ThresholdError, match="layer bn1: all scaling factors are zero, and nothing"):
        ot.plan(model, toy.example())
    pruned_exactly(with_dead(make(toy), "bn2"), toy.example())  # the gate is constant, what it lets through is not


def test_a_head_of_training_is_enough_to_get_past_a_layer() -> None:
    name, layer = PAST_IT_IN_TRAINING
    model = with_dead(make(TOYS[name]), layer)
    kept = {one.name: one.kept for one in ot.plan(model, TOYS[name].example()).layers}
    assert len(kept[layer]) < model.get_parameter(f"{layer}.weight").numel()


@pytest.mark.parametrize("write", [lambda z, y: z[:, :4].add_(y[:, :4]), lambda z, y: z[:, :4].copy_(y[:, :4])])
def test_what_is_written_into_a_dead_layers_output_gets_past_it(write: Callable[[Tensor, Tensor], Any]) -> None:
    def rest(self: Any, one: Tensor, two: Tensor) -> Tensor:
        write(one, two)
        return self.last(self.head(one))

    toy = net(rest, last=lambda: norm(2, 4))
    pruned_exactly(with_dead(make(toy), "bn1"), toy.example())


def test_a_layer_of_densenet_may_be_dead_and_costs_next_to_nothing_then() -> None:
    """A strong penalty makes some so: what is around it is trained on, and counted."""
    model, image = models.build("densenet121", num_classes=10).double(), torch.randn(1, 3, 32, 32).double()
    block = "features.denseblock3.denselayer19"
    with_dead(model, f"{block}.norm1", f"{block}.norm2")
    before, after = (parameters_of(one, block) for one in (model, pruned_exactly(model, image)))
    assert after < 0.02 * before


def parameters_of(model: nn.Module, part: str) -> int:
    return sum(parameter.numel() for parameter in model.get_submodule(part).parameters())
