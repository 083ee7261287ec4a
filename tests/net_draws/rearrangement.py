"""How to draw channels taken apart, shuffled, or turned into places and back."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import MOST_CHANNELS, can_double, divisible, even, group_counts, plane, several, spatial
from tests.net_scene import Scene
from tests.net_spec import Step, make_step


@kind(several, weight=4)
def split(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("split", [index], style=choices.pick(["chunk", "slice", "split", "tensor_split"]))


@kind(several, weight=1)
def interleave(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("interleave", [index])


@kind(divisible)
def shuffle(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("shuffle", [index], groups=choices.pick(group_counts(scene.channels(index))))


@kind(lambda scene, index: spatial(scene, index) and even(scene, index), weight=3)
def shuffle_unit(choices: Choices, scene: Scene, index: int) -> Step:
    channels = scene.channels(index)
    return make_step("shuffle_unit", [index], dims=scene.dims(index), channels=channels, act=any_act(choices))


@kind(lambda scene, index: plane(scene, index) and can_double(scene, index), weight=5)
def pixel_shuffle(choices: Choices, scene: Scene, index: int) -> Step:
    cout, bn, style = choices.integer(1, 3), choices.flag(), choices.pick(["functional", "module"])
    return make_step("pixel_shuffle", [index], cin=scene.channels(index), cout=cout, bn=bn, style=style)


def _is_even_plane(scene: Scene, index: int) -> bool:
    fits = plane(scene, index) and 4 * scene.channels(index) <= MOST_CHANNELS
    return fits and all(size % 2 == 0 for size in scene.shapes[index][1:])


@kind(_is_even_plane)
def pixel_unshuffle(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("pixel_unshuffle", [index])
