"""How to draw tensors put beside or behind one another: along channels, places, the batch, a dimension of their own."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import MOST_CHANNELS, can_double, has_spatial_twin, has_twin
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


def _fits_beside(scene: Scene, index: int) -> list[int]:
    room = MOST_CHANNELS - scene.channels(index)
    return [other for other in scene.same_size(index) if scene.channels(other) <= room]


@kind(lambda scene, index: bool(_fits_beside(scene, index)), weight=5)
def cat(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("cat", [index, choices.pick(_fits_beside(scene, index))])


def _raw_inputs_beside(scene: Scene, index: int) -> list[int]:
    return [other for other in _fits_beside(scene, index) if other < scene.inputs <= index]


@kind(lambda scene, index: bool(_raw_inputs_beside(scene, index)))
def cat_with_input(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("cat", [index, choices.pick(_raw_inputs_beside(scene, index))])


@kind(lambda scene, index: can_double(scene, index) and has_twin(scene, index), weight=3)
def cat_positions(choices: Choices, scene: Scene, index: int) -> Step:
    axis = choices.integer(2, 1 + scene.dims(index))
    return make_step("cat_positions", [index, choices.pick(scene.same_shape(index))], axis=axis)


@kind(has_spatial_twin, weight=3)
def cat_batch(choices: Choices, scene: Scene, index: int) -> Step:
    twins, sizes = _convolved_twins(choices, scene, index)
    bn, act = choices.flag(), any_act(choices)
    return make_step("cat_batch", twins, **sizes, bn=bn, act=act, join=choices.pick(["sum", "cat"]))


@kind(lambda scene, index: has_twin(scene, index) and 2 * scene.channels(index) <= MOST_CHANNELS, weight=3)
def stack(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["beside", "interleaved", "mean", "max"])
    return make_step("stack", [index, choices.pick(scene.same_shape(index))], style=style)


@kind(lambda scene, index: scene.dims(index) < 3 and has_spatial_twin(scene, index))
def stack_conv(choices: Choices, scene: Scene, index: int) -> Step:
    twins, sizes = _convolved_twins(choices, scene, index)
    return make_step("stack_conv", twins, **sizes, bias=choices.flag())


def _convolved_twins(choices: Choices, scene: Scene, index: int) -> tuple[list[int], dict[str, int]]:
    """Two tensors of one shape, and what a convolution over both of them is made with."""
    twins = [index, choices.pick(scene.same_shape(index))]
    return twins, {"dims": scene.dims(index), "cin": scene.channels(index), "cout": scene.width(choices)}
