"""How to draw channels scaled by what is computed from them or from another tensor."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import kind
from tests.net_draws.fitting import even, features, spatial
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


@kind(spatial, weight=3)
def squeeze_excite(choices: Choices, scene: Scene, index: int) -> Step:
    channels, mid = scene.channels(index), choices.integer(2, 4)
    gate = choices.pick(["sigmoid", "hardsigmoid"])
    bn = choices.flag()
    return make_step("squeeze_excite", [index], dims=scene.dims(index), channels=channels, mid=mid, bn=bn, gate=gate)


@kind(spatial)
def squeeze_excite_linear(choices: Choices, scene: Scene, index: int) -> Step:
    channels, mid = scene.channels(index), choices.integer(2, 4)
    gate = choices.pick(["sigmoid", "hardsigmoid"])
    return make_step("squeeze_excite_linear", [index], channels=channels, mid=mid, gate=gate)


@kind(spatial)
def spatial_gate(choices: Choices, scene: Scene, index: int) -> Step:
    channels, pooled = scene.channels(index), choices.flag()
    return make_step("spatial_gate", [index], dims=scene.dims(index), channels=channels, pooled=pooled)


@kind(spatial)
def conv_gate(choices: Choices, scene: Scene, index: int) -> Step:
    channels, bn = scene.channels(index), choices.flag()
    return make_step("conv_gate", [index], dims=scene.dims(index), channels=channels, bn=bn)


@kind(even)
def glu(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("glu", [index], functional=choices.flag())


def _features_of(scene: Scene) -> list[int]:
    return [index for index in scene.where(lambda shape: True) if features(scene, index)]


@kind(lambda scene, index: spatial(scene, index) and bool(_features_of(scene)), weight=3)
def modulate(choices: Choices, scene: Scene, index: int) -> Step:
    by = choices.pick(_features_of(scene))
    return make_step("modulate", [index, by], features=scene.channels(by), channels=scene.channels(index))
