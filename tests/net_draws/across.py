"""How to draw operators that look at all channels at once."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import kind
from tests.net_draws.fitting import several, spatial
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


@kind(several)
def channel_reduction(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("channel_reduction", [index], style=choices.pick(["mean", "sum", "max", "softmax", "centre"]))


@kind(several, weight=1)
def by_channel_mean(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("by_channel_mean", [index])


@kind(lambda scene, index: several(scene, index) and spatial(scene, index))
def unusual(choices: Choices, scene: Scene, index: int) -> Step:
    styles = ["cumsum", "roll", "flip", "sort", "group_norm", "normalize"]
    return make_step("unusual", [index], style=choices.pick(styles))
