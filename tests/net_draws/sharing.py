"""How to draw layers that run more than once."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import has_spatial_twin, spatial
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


@kind(spatial, weight=3)
def shared_in_a_row(choices: Choices, scene: Scene, index: int) -> Step:
    bn = choices.pick(["shared", "separate", "none"])
    channels = scene.channels(index)
    return make_step("shared_in_a_row", [index], dims=scene.dims(index), channels=channels, bn=bn, act=any_act(choices))


@kind(has_spatial_twin, weight=3)
def shared_towers(choices: Choices, scene: Scene, index: int) -> Step:
    other = choices.pick(scene.same_shape(index))
    return make_step(
        "shared_towers",
        [index, other],
        dims=scene.dims(index),
        cin=scene.channels(index),
        cout=scene.width(choices),
        bn=choices.flag(),
        join=choices.pick(["sum", "cat"]),
    )
