"""How to draw sums, products and maxima of several tensors."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import any_tensor, has_twin, spatial
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


@kind(has_twin, weight=6)
def add(choices: Choices, scene: Scene, index: int) -> Step:
    others = [choices.pick(scene.same_shape(index)) for _ in range(choices.integer(1, 2))]
    return make_step("add", [index, *others], style=choices.pick(["plus", "stack", "minus", "weighted"]))


@kind(lambda scene, index: index in scene.overwritable and has_twin(scene, index), weight=8)
def add_in_place(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("add", [index, choices.pick(scene.same_shape(index))], style="inplace")


@kind(any_tensor, weight=1)
def add_to_itself(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("add", [index, index], style="plus")


@kind(has_twin, weight=4)
def sum_in_place(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["method", "functional", "module", "number", "operand", "ignored"])
    return make_step("sum_in_place", [index, choices.pick(scene.same_shape(index))], style=style)


@kind(lambda scene, index: spatial(scene, index) and bool(scene.same_size(index)), weight=4)
def join(choices: Choices, scene: Scene, index: int) -> Step:
    sources = [index, *(choices.pick(scene.same_size(index)) for _ in range(choices.integer(1, 2)))]
    return make_step(
        "join",
        sources,
        dims=scene.dims(index),
        widths=tuple(scene.channels(source) for source in sources),
        cout=scene.width(choices),
        bns=tuple(choices.integer(0, 1) for _ in sources),
        act=any_act(choices),
    )


@kind(has_twin)
def multiply(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("multiply", [index, choices.pick(scene.same_shape(index))])


@kind(has_twin, weight=1)
def maximum(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("maximum", [index, choices.pick(scene.same_shape(index))])
