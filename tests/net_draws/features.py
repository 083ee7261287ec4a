"""How to draw steps from places to features, and layers on features."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import MOST_FEATURES, features, spatial
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


def few_values(scene: Scene, index: int) -> bool:
    values = 1
    for size in scene.shapes[index]:
        values *= size
    return spatial(scene, index) and values <= MOST_FEATURES


@kind(few_values)
def flatten(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("flatten", [index], style=choices.pick(["flatten", "view", "reshape"]))


@kind(spatial, weight=1)
def global_pool(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["adaptive", "mean", "amax"])
    return make_step("global_pool", [index], dims=scene.dims(index), style=style)


@kind(features, weight=8)
def linear(choices: Choices, scene: Scene, index: int) -> Step:
    cout, bias, bn = scene.width(choices), choices.flag(), choices.flag()
    return make_step("linear", [index], cin=scene.channels(index), cout=cout, bias=bias, bn=bn, act=any_act(choices))


@kind(spatial, weight=1)
def channels_last(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("channels_last", [index], cin=scene.channels(index), cout=scene.width(choices))
