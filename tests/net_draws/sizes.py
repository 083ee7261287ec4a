"""How to draw steps to other heights and widths: pools, upsampling, padding."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import kind
from tests.net_draws.fitting import can_double, can_halve, smallest, spatial
from tests.net_modules.sizes import POOLS
from tests.net_scene import WIDTHS, Scene
from tests.net_spec import Step, make_step


@kind(can_halve, weight=4)
def pool(choices: Choices, scene: Scene, index: int) -> Step:
    # torch's 3-d average pool wants the kernel to fit without its padding
    fitting = [style for style, (_, arguments) in POOLS.items() if arguments[0] <= smallest(scene.shapes[index])]
    return make_step("pool", [index], dims=scene.dims(index), style=choices.pick(fitting))


@kind(can_double)
def upsample(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("upsample", [index], style=choices.pick(["functional", "module"]))


@kind(lambda scene, index: spatial(scene, index) and scene.channels(index) <= WIDTHS[1], weight=1)
def pad(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("pad", [index], dims=scene.dims(index), style=choices.pick(["edges", "channels"]))
