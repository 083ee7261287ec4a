"""How to draw batch norms, activations, factors, offsets and noise: what leaves channels and places where they are."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import any_tensor
from tests.net_layers import ACTIVATIONS
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


@kind(any_tensor, weight=5)
def batch_norm(choices: Choices, scene: Scene, index: int) -> Step:
    affine = choices.integer(0, 7) < 7
    return make_step("batch_norm", [index], dims=scene.dims(index), channels=scene.channels(index), affine=affine)


@kind(any_tensor, weight=3)
def norm_act(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("norm_act", [index], dims=scene.dims(index), channels=scene.channels(index), act=any_act(choices))


@kind(any_tensor, weight=5)
def activation(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("activation", [index], act=choices.pick([name for name in ACTIVATIONS if name != "relu_inplace"]))


@kind(lambda scene, index: index in scene.overwritable)
def activation_in_place(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("activation", [index], act="relu_inplace")


@kind(any_tensor, weight=1)
def prelu(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("prelu", [index], channels=scene.channels(index))


@kind(any_tensor)
def dropout(choices: Choices, scene: Scene, index: int) -> Step:
    channelwise = scene.dims(index) > 0 and choices.flag()
    return make_step("dropout", [index], dims=scene.dims(index), channelwise=channelwise)


@kind(any_tensor)
def layer_scale(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("layer_scale", [index], dims=scene.dims(index), channels=scene.channels(index))


@kind(any_tensor)
def constant(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["number", "parameter", "buffer"])
    return make_step("constant", [index], dims=scene.dims(index), channels=scene.channels(index), style=style)
