"""How to draw convolutions: alone, with a batch norm, in groups, transposed."""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws.base import any_act, kind
from tests.net_draws.fitting import can_double, divisible, group_counts, smallest, spatial
from tests.net_scene import WIDTHS, Scene
from tests.net_spec import Option, Shape, Step, make_step

# kernel, stride, padding, dilation; the common ones several times
GEOMETRIES = (
    *[(1, 1, 0, 1)] * 3,
    *[(3, 1, 1, 1)] * 5,
    (3, 1, 0, 1),
    (3, 2, 1, 1),
    (3, 1, 2, 2),
    (3, 1, 0, 2),
    (2, 2, 0, 1),
    (1, 2, 0, 1),
    (5, 1, 2, 1),
)


def _geometry(choices: Choices, shape: Shape) -> dict[str, Option]:
    fitting = [g for g in GEOMETRIES if smallest(shape) + 2 * g[2] > g[3] * (g[0] - 1)]
    return dict(zip(("kernel", "stride", "padding", "dilation"), choices.pick(fitting), strict=True))


def _conv_options(choices: Choices, scene: Scene, index: int) -> dict[str, Option]:
    options: dict[str, Option] = {"dims": scene.dims(index), "cin": scene.channels(index)}
    options["cout"] = scene.width(choices)
    options |= _geometry(choices, scene.shapes[index])
    return options | {"groups": 1, "bias": choices.flag()}


@kind(spatial, weight=10)
def conv_bn_act(choices: Choices, scene: Scene, index: int) -> Step:
    options = _conv_options(choices, scene, index)
    affine = choices.integer(0, 7) < 7
    return make_step("conv_bn_act", [index], **options, affine=affine, act=any_act(choices))


@kind(spatial, weight=4)
def conv(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("conv", [index], **_conv_options(choices, scene, index))


def _grouped_conv_options(choices: Choices, scene: Scene, index: int) -> dict[str, Option]:
    groups = choices.pick(group_counts(scene.channels(index)))
    cout = groups * choices.integer(1, WIDTHS[1] // groups)
    return _conv_options(choices, scene, index) | {"cout": cout, "groups": groups}


def _grouped(scene: Scene, index: int) -> bool:
    return spatial(scene, index) and divisible(scene, index)


@kind(_grouped)
def grouped_conv(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("conv", [index], **_grouped_conv_options(choices, scene, index))


@kind(_grouped, weight=4)
def grouped_conv_bn_act(choices: Choices, scene: Scene, index: int) -> Step:
    options = _grouped_conv_options(choices, scene, index)
    return make_step("conv_bn_act", [index], **options, affine=True, act=any_act(choices))


@kind(spatial)
def depthwise_conv(choices: Choices, scene: Scene, index: int) -> Step:
    width = scene.channels(index)
    multiplier = choices.integer(1, 2) if width <= WIDTHS[1] // 2 else 1
    options = _conv_options(choices, scene, index) | {"cout": width * multiplier, "groups": width}
    return make_step("conv", [index], **options)


@kind(spatial, weight=4)
def depthwise_separable(choices: Choices, scene: Scene, index: int) -> Step:
    cin, cout = scene.channels(index), scene.width(choices)
    multiplier = choices.integer(1, 2) if cin <= WIDTHS[1] // 2 else 1
    stride = choices.pick([1, 1, 2])
    return make_step(
        "depthwise_separable",
        [index],
        dims=scene.dims(index),
        cin=cin,
        cout=cout,
        multiplier=multiplier,
        stride=stride,
        act=any_act(choices),
    )


# kernel, stride, padding, output padding
TRANSPOSED_GEOMETRIES = ((3, 1, 1, 0), (1, 1, 0, 0), (2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0))


@kind(spatial, weight=4)
def transposed_conv(choices: Choices, scene: Scene, index: int) -> Step:
    cin = scene.channels(index)
    groups = choices.pick([1, *group_counts(cin)])
    fitting = [g for g in TRANSPOSED_GEOMETRIES if g[1] == 1 or can_double(scene, index)]
    geometry = zip(("kernel", "stride", "padding", "output_padding"), choices.pick(fitting), strict=True)
    return make_step(
        "transposed_conv",
        [index],
        dims=scene.dims(index),
        cin=cin,
        cout=groups * choices.integer(1, WIDTHS[1] // groups),
        **dict(geometry),
        groups=groups,
        bias=choices.flag(),
        bn=choices.flag(),
        act=any_act(choices),
    )
