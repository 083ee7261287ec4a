"""How to draw residual blocks of every sort."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import spatial
from tests.net_scene import Scene
from tests.net_spec import Option, Step, make_step


def _widths(choices: Choices, scene: Scene, index: int) -> tuple[dict[str, Option], bool]:
    """Widths and stride of a block, and whether its shortcut is a projection, without which both ends are alike."""
    cin, mid, projection = scene.channels(index), scene.width(choices), choices.flag()
    cout = scene.width(choices) if projection else cin
    stride = choices.pick([1, 1, 2]) if projection else 1
    return {"dims": scene.dims(index), "cin": cin, "mid": mid, "cout": cout, "stride": stride}, projection


@kind(spatial, weight=6)
def residual(choices: Choices, scene: Scene, index: int) -> Step:
    widths, projection = _widths(choices, scene, index)
    return make_step(
        "residual",
        [index],
        **widths,
        branches=choices.pick([1, 1, 2, 3]),
        last_bn=choices.integer(0, 3) < 3,
        projection=projection,
        act=any_act(choices),
    )


@kind(spatial, weight=3)
def bottleneck(choices: Choices, scene: Scene, index: int) -> Step:
    channels = scene.channels(index)
    return make_step("bottleneck", [index], dims=scene.dims(index), channels=channels, mid=scene.width(choices))


@kind(spatial, weight=6)
def pre_residual(choices: Choices, scene: Scene, index: int) -> Step:
    widths, projection = _widths(choices, scene, index)
    return make_step("pre_residual", [index], **widths, projection=projection, act=any_act(choices))


@kind(spatial, weight=3)
def inverted_residual(choices: Choices, scene: Scene, index: int) -> Step:
    channels, mid, squeeze = scene.channels(index), scene.width(choices), choices.flag()
    return make_step(
        "inverted_residual",
        [index],
        dims=scene.dims(index),
        channels=channels,
        mid=mid,
        squeeze=squeeze,
        act=any_act(choices),
    )
