"""How to draw dense blocks and the transitions between them."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import can_halve, spatial
from tests.net_scene import WIDTHS, Scene
from tests.net_spec import Step, make_step


@kind(lambda scene, index: spatial(scene, index) and scene.channels(index) <= WIDTHS[1], weight=6)
def dense(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step(
        "dense",
        [index],
        dims=scene.dims(index),
        cin=scene.channels(index),
        growth=choices.integer(2, 4),
        layers=choices.integer(1, 3),
        bottleneck=choices.flag(),
        act=any_act(choices),
    )


@kind(can_halve)
def transition(choices: Choices, scene: Scene, index: int) -> Step:
    cin, cout = scene.channels(index), scene.width(choices)
    return make_step("transition", [index], dims=scene.dims(index), cin=cin, cout=cout, act=any_act(choices))
