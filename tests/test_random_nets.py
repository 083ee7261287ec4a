"""The generator of random networks: it forgets no pattern, and every network it draws is one worth pruning."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.net_choices import DrawnChoices, RandomChoices
from tests.net_patterns import PATTERNS, patterns
from tests.random_nets import RandomNet, Spec, build, example, gammas, network_specs, random_mask, random_spec

COUNT = 300
FEW = 0.02 * COUNT  # a last ReLU may find nothing above zero


class Case(NamedTuple):
    """A spec, its network in eval mode, and what that makes of the example."""

    spec: Spec
    model: RandomNet
    outputs: list[Tensor]


def run(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with torch.no_grad():
        return tree_leaves(model(*inputs))


def case_of(spec: Spec) -> Case:
    model = build(spec).eval()
    return Case(spec, model, run(model, example(spec)))


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case_of(random_spec(random.Random(seed))) for seed in range(COUNT)]


def test_every_pattern_occurs(cases: list[Case]) -> None:
    counts = Counter(name for case in cases for name in patterns(case.spec))
    assert [name for name in PATTERNS if not counts[name]] == []


def test_every_network_trains(cases: list[Case]) -> None:
    for spec, _, _ in cases:
        model = build(spec)
        loss = torch.stack([output.square().mean() for output in tree_leaves(model(*example(spec)))]).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None), spec


def test_values_are_of_a_size_that_can_be_compared(cases: list[Case]) -> None:
    largest = [max(float(output.abs().max()) for output in case.outputs) for case in cases]
    assert max(largest) < 1e3
    assert sum(value <= 1e-3 for value in largest) <= FEW


def test_running_leaves_the_inputs_alone(cases: list[Case]) -> None:
    for spec, model, _ in cases:
        inputs = example(spec)
        run(model, inputs)
        assert all(map(torch.equal, inputs, example(spec))), spec


def test_json_gives_the_same_network_back(cases: list[Case]) -> None:
    for spec, _, outputs in cases:
        again = Spec.from_json(spec.to_json())
        assert again == spec
        assert all(map(torch.equal, outputs, case_of(again).outputs)), spec


def test_drawing_and_building_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    build(random_spec(random.Random(0)))
    assert torch.equal(before, torch.random.get_rng_state())


def test_outputs_depend_on_inputs(cases: list[Case]) -> None:
    independent = [case.spec for case in cases if not depends_on_inputs(case)]
    assert len(independent) <= FEW, independent


def depends_on_inputs(case: Case) -> bool:
    """Whether every output changes visibly when the inputs change."""
    changed = run(case.model, tuple(tensor.flip(0) + 0.5 for tensor in example(case.spec)))
    pairs = zip(case.outputs, changed, strict=True)
    return all((one - other).abs().max() > 1e-3 * one.abs().max() for one, other in pairs)


def test_every_network_has_a_batch_norm_far_from_the_identity(cases: list[Case]) -> None:
    for spec, model, _ in cases:
        assert gammas(model), spec
        for name in gammas(model):
            norm = model.get_submodule(name)
            assert any(part.startswith("bn") for part in name.split(".")[-2:])
            for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                assert isinstance(value, Tensor) and value.abs().min() > 0


def test_scaling_factors_matter(cases: list[Case]) -> None:
    idle = [case.spec for case in cases if all(map(torch.equal, case.outputs, with_doubled_factors(case.spec)))]
    assert len(idle) <= FEW, idle


def with_doubled_factors(spec: Spec) -> list[Tensor]:
    """What the network makes of the example with every scaling factor twice as large."""
    doubled = build(spec).eval()
    for name in gammas(doubled):
        norm = doubled.get_submodule(name)
        assert isinstance(norm.weight, Tensor)
        norm.weight.data *= 2
    return run(doubled, example(spec))


def test_train_mode_alone_reaches_the_auxiliary_head(cases: list[Case]) -> None:
    with_head = [case for case in cases if case.spec.auxiliary]
    for spec, model, outputs in with_head:
        assert "auxiliary.bn" in gammas(model)
        assert len(run(build(spec), example(spec))) == len(outputs) + 1


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(network_specs())
def test_hypothesis_draws_networks_that_run(spec: Spec) -> None:
    case = case_of(spec)
    assert all(output.isfinite().all() for output in case.outputs)
    assert gammas(case.model)


def test_hypothesis_shrinks_to_the_step_that_matters() -> None:
    found = hypothesis.find(
        network_specs(),
        lambda spec: any(step.kind == "dense" for step in spec.steps),
        settings=hypothesis.settings(max_examples=2000, deadline=None, database=None),
        random=random.Random(1),
    )
    assert len(found.steps) <= 2
    (step,) = [step for step in found.steps if step.kind == "dense"]
    assert (step["growth"], step["layers"], step["act"]) == (2, 1, "relu")


WIDTHS = {"a": 8, "b": 8, "c": 5, "d": 1}


@pytest.mark.parametrize("seed", range(20))
def test_masks_fit_the_layers(seed: int) -> None:
    mask = random_mask(RandomChoices(random.Random(seed)), WIDTHS)
    assert list(mask) == list(WIDTHS)
    for name, zeroed in mask.items():
        assert zeroed == sorted(set(zeroed)) and set(zeroed) <= set(range(WIDTHS[name]))


def test_masks_are_of_every_sort() -> None:
    masks = [random_mask(RandomChoices(random.Random(seed)), WIDTHS) for seed in range(200)]
    assert {len(mask["a"]) for mask in masks} == {0, 2, 4, 7, 8}
    agreeing = sum(mask["a"] == mask["b"] for mask in masks)
    assert 80 < agreeing < 180


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.data())
def test_hypothesis_draws_masks(data: st.DataObject) -> None:
    mask = random_mask(DrawnChoices(data.draw), WIDTHS)
    assert all(set(zeroed) <= set(range(WIDTHS[name])) for name, zeroed in mask.items())
