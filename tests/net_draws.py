"""How each kind of step is drawn: one function a kind, which is given a tensor that fits and decides the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.net_choices import Choices
from tests.net_layers import ACTIVATIONS, OTHER_AT_ZERO, ZERO_AT_ZERO
from tests.net_scene import WIDTHS, Scene
from tests.net_spec import Option, Shape, Step, make_step
from tests.net_steps import POOLS

MOST_CHANNELS = 24
MOST_FEATURES = 600
LARGEST_SIZE = 12

Accept = Callable[[Scene, int], bool]
Draw = Callable[[Choices, Scene, int], Step]


class Kind(NamedTuple):
    """A kind of step: which tensors it can read first, how it is drawn, how often beside the others."""

    accept: Accept
    draw: Draw
    weight: int


KINDS: dict[str, Kind] = {}


def kind(accept: Accept, weight: int = 2) -> Callable[[Draw], Draw]:
    """Register the function as the way to draw the kind it is named after."""

    def register(draw: Draw) -> Draw:
        KINDS[draw.__name__] = Kind(accept, draw, weight)
        return draw

    return register


def draw_step(choices: Choices, scene: Scene) -> Step | None:
    """Any step, or none where no tensor fits it.

    The kinds to pick from never change, so that the same decision means the same kind when hypothesis takes out a step.
    """
    picked = KINDS[choices.pick([name for name, kind in KINDS.items() for _ in range(kind.weight)])]
    fitting = [index for index in scene.where(lambda shape: True) if picked.accept(scene, index)]
    return picked.draw(choices, scene, scene.source(choices, fitting)) if fitting else None


def any_tensor(scene: Scene, index: int) -> bool:
    return True


def features(scene: Scene, index: int) -> bool:
    return scene.dims(index) == 0


def spatial(scene: Scene, index: int) -> bool:
    return scene.dims(index) > 0


def _is_plane(scene: Scene, index: int) -> bool:
    return scene.dims(index) == 2


def divisible(scene: Scene, index: int) -> bool:
    """At least two channels that groups can share evenly."""
    return bool(_groups(scene.shapes[index][0]))


def even(scene: Scene, index: int) -> bool:
    return scene.shapes[index][0] % 2 == 0


def several(scene: Scene, index: int) -> bool:
    """More than one channel, without which a softmax or a mean over channels says nothing."""
    return scene.shapes[index][0] > 1


def _width(scene: Scene, index: int) -> int:
    return scene.shapes[index][0]


def _groups(channels: int) -> list[int]:
    return [groups for groups in (2, 3, 4) if channels % groups == 0 and channels > groups]


def _smallest(shape: Shape) -> int:
    return min(shape[1:])


def _act(choices: Choices) -> str:
    """Mostly an activation that keeps zeros, because that is what networks mostly have."""
    return choices.pick(list(ZERO_AT_ZERO)) if choices.integer(0, 3) < 3 else choices.pick(list(OTHER_AT_ZERO))


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
    fitting = [g for g in GEOMETRIES if _smallest(shape) + 2 * g[2] > g[3] * (g[0] - 1)]
    return dict(zip(("kernel", "stride", "padding", "dilation"), choices.pick(fitting), strict=True))


def _conv_options(choices: Choices, scene: Scene, index: int) -> dict[str, Option]:
    options: dict[str, Option] = {"dims": scene.dims(index), "cin": _width(scene, index)}
    options["cout"] = scene.width(choices)
    options |= _geometry(choices, scene.shapes[index])
    return options | {"groups": 1, "bias": choices.flag()}


@kind(spatial, weight=10)
def conv_bn_act(choices: Choices, scene: Scene, index: int) -> Step:
    options = _conv_options(choices, scene, index)
    affine = choices.integer(0, 7) < 7
    return make_step("conv_bn_act", [index], **options, affine=affine, act=_act(choices))


@kind(spatial, weight=4)
def conv(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("conv", [index], **_conv_options(choices, scene, index))


def _grouped_conv_options(choices: Choices, scene: Scene, index: int) -> dict[str, Option]:
    groups = choices.pick(_groups(_width(scene, index)))
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
    return make_step("conv_bn_act", [index], **options, affine=True, act=_act(choices))


@kind(spatial)
def depthwise_conv(choices: Choices, scene: Scene, index: int) -> Step:
    width = _width(scene, index)
    multiplier = choices.integer(1, 2) if width <= WIDTHS[1] // 2 else 1
    options = _conv_options(choices, scene, index) | {"cout": width * multiplier, "groups": width}
    return make_step("conv", [index], **options)


@kind(any_tensor, weight=5)
def batch_norm(choices: Choices, scene: Scene, index: int) -> Step:
    affine = choices.integer(0, 7) < 7
    return make_step("batch_norm", [index], dims=scene.dims(index), channels=_width(scene, index), affine=affine)


@kind(any_tensor, weight=3)
def norm_act(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("norm_act", [index], dims=scene.dims(index), channels=_width(scene, index), act=_act(choices))


@kind(any_tensor, weight=5)
def activation(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("activation", [index], act=choices.pick([name for name in ACTIVATIONS if name != "relu_inplace"]))


@kind(lambda scene, index: index in scene.overwritable)
def activation_in_place(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("activation", [index], act="relu_inplace")


@kind(any_tensor, weight=1)
def prelu(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("prelu", [index], channels=_width(scene, index))


@kind(lambda scene, index: bool(scene.same_shape(index)), weight=6)
def add(choices: Choices, scene: Scene, index: int) -> Step:
    others = [choices.pick(scene.same_shape(index)) for _ in range(choices.integer(1, 2))]
    return make_step("add", [index, *others], style=choices.pick(["plus", "stack", "minus", "weighted"]))


@kind(lambda scene, index: index in scene.overwritable and bool(scene.same_shape(index)), weight=8)
def add_in_place(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("add", [index, choices.pick(scene.same_shape(index))], style="inplace")


@kind(any_tensor, weight=1)
def add_to_itself(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("add", [index, index], style="plus")


@kind(lambda scene, index: bool(scene.same_shape(index)))
def multiply(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("multiply", [index, choices.pick(scene.same_shape(index))])


@kind(lambda scene, index: bool(scene.same_shape(index)), weight=1)
def maximum(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("maximum", [index, choices.pick(scene.same_shape(index))])


def _fits_beside(scene: Scene, index: int) -> list[int]:
    room = MOST_CHANNELS - _width(scene, index)
    return [other for other in scene.same_size(index) if _width(scene, other) <= room]


@kind(lambda scene, index: bool(_fits_beside(scene, index)), weight=5)
def cat(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("cat", [index, choices.pick(_fits_beside(scene, index))])


def _raw_inputs_beside(scene: Scene, index: int) -> list[int]:
    return [other for other in _fits_beside(scene, index) if other < scene.inputs <= index]


@kind(lambda scene, index: bool(_raw_inputs_beside(scene, index)))
def cat_with_input(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("cat", [index, choices.pick(_raw_inputs_beside(scene, index))])


def _fits_behind(scene: Scene, index: int) -> list[int]:
    fits = spatial(scene, index) and max(scene.shapes[index][1:]) <= LARGEST_SIZE // 2
    return scene.same_shape(index) if fits else []


@kind(lambda scene, index: bool(_fits_behind(scene, index)), weight=3)
def cat_positions(choices: Choices, scene: Scene, index: int) -> Step:
    axis = choices.integer(2, 1 + scene.dims(index))
    return make_step("cat_positions", [index, choices.pick(_fits_behind(scene, index))], axis=axis)


def _spatial_twins(scene: Scene, index: int) -> list[int]:
    return scene.same_shape(index) if spatial(scene, index) else []


@kind(lambda scene, index: bool(_spatial_twins(scene, index)), weight=3)
def cat_batch(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step(
        "cat_batch",
        [index, choices.pick(_spatial_twins(scene, index))],
        dims=scene.dims(index),
        cin=_width(scene, index),
        cout=scene.width(choices),
        bn=choices.flag(),
        act=_act(choices),
        join=choices.pick(["sum", "cat"]),
    )


@kind(lambda scene, index: bool(scene.same_shape(index)) and 2 * _width(scene, index) <= MOST_CHANNELS, weight=3)
def stack(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["beside", "interleaved", "mean", "max"])
    return make_step("stack", [index, choices.pick(scene.same_shape(index))], style=style)


@kind(lambda scene, index: scene.dims(index) < 3 and bool(_spatial_twins(scene, index)))
def stack_conv(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step(
        "stack_conv",
        [index, choices.pick(_spatial_twins(scene, index))],
        dims=scene.dims(index),
        cin=_width(scene, index),
        cout=scene.width(choices),
        bias=choices.flag(),
    )


@kind(lambda scene, index: _is_plane(scene, index) and _small_enough(scene, index), weight=5)
def pixel_shuffle(choices: Choices, scene: Scene, index: int) -> Step:
    cout, bn, style = choices.integer(1, 3), choices.flag(), choices.pick(["functional", "module"])
    return make_step("pixel_shuffle", [index], cin=_width(scene, index), cout=cout, bn=bn, style=style)


def _is_even_plane(scene: Scene, index: int) -> bool:
    fits = _is_plane(scene, index) and 4 * _width(scene, index) <= MOST_CHANNELS
    return fits and all(size % 2 == 0 for size in scene.shapes[index][1:])


@kind(_is_even_plane)
def pixel_unshuffle(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("pixel_unshuffle", [index])


@kind(lambda scene, index: bool(scene.same_shape(index)), weight=4)
def sum_in_place(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["method", "functional", "module", "number", "operand", "ignored"])
    return make_step("sum_in_place", [index, choices.pick(scene.same_shape(index))], style=style)


@kind(several, weight=4)
def split(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("split", [index], style=choices.pick(["chunk", "slice", "split", "tensor_split"]))


@kind(several, weight=1)
def interleave(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("interleave", [index])


@kind(divisible)
def shuffle(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("shuffle", [index], groups=choices.pick(_groups(_width(scene, index))))


@kind(lambda scene, index: spatial(scene, index) and _smallest(scene.shapes[index]) >= 2, weight=4)
def pool(choices: Choices, scene: Scene, index: int) -> Step:
    # torch's 3-d average pool wants the kernel to fit without its padding
    fitting = [style for style, (_, arguments) in POOLS.items() if arguments[0] <= _smallest(scene.shapes[index])]
    return make_step("pool", [index], dims=scene.dims(index), style=choices.pick(fitting))


def _small_enough(scene: Scene, index: int) -> bool:
    return spatial(scene, index) and max(scene.shapes[index][1:]) <= LARGEST_SIZE // 2


@kind(_small_enough)
def upsample(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("upsample", [index], style=choices.pick(["functional", "module"]))


@kind(any_tensor)
def dropout(choices: Choices, scene: Scene, index: int) -> Step:
    channelwise = scene.dims(index) > 0 and choices.flag()
    return make_step("dropout", [index], dims=scene.dims(index), channelwise=channelwise)


@kind(any_tensor)
def layer_scale(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("layer_scale", [index], dims=scene.dims(index), channels=_width(scene, index))


@kind(any_tensor)
def constant(choices: Choices, scene: Scene, index: int) -> Step:
    style = choices.pick(["number", "parameter", "buffer"])
    return make_step("constant", [index], dims=scene.dims(index), channels=_width(scene, index), style=style)


@kind(several)
def channel_reduction(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("channel_reduction", [index], style=choices.pick(["mean", "sum", "max", "softmax", "centre"]))


@kind(several, weight=1)
def by_channel_mean(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("by_channel_mean", [index])


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
    return make_step("linear", [index], cin=_width(scene, index), cout=cout, bias=bias, bn=bn, act=_act(choices))


@kind(spatial, weight=1)
def channels_last(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("channels_last", [index], cin=_width(scene, index), cout=scene.width(choices))


@kind(lambda scene, index: spatial(scene, index) and _width(scene, index) <= WIDTHS[1], weight=1)
def pad(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("pad", [index], dims=scene.dims(index), style=choices.pick(["edges", "channels"]))


@kind(lambda scene, index: several(scene, index) and spatial(scene, index))
def unusual(choices: Choices, scene: Scene, index: int) -> Step:
    styles = ["cumsum", "roll", "flip", "sort", "group_norm", "normalize"]
    return make_step("unusual", [index], style=choices.pick(styles))


@kind(spatial, weight=6)
def residual(choices: Choices, scene: Scene, index: int) -> Step:
    cin, mid = _width(scene, index), scene.width(choices)
    projection = choices.flag()
    return make_step(
        "residual",
        [index],
        dims=scene.dims(index),
        cin=cin,
        mid=mid,
        cout=scene.width(choices) if projection else cin,
        stride=choices.pick([1, 1, 2]) if projection else 1,
        branches=choices.pick([1, 1, 2, 3]),
        last_bn=choices.integer(0, 3) < 3,
        projection=projection,
        act=_act(choices),
    )


@kind(spatial, weight=3)
def bottleneck(choices: Choices, scene: Scene, index: int) -> Step:
    channels = _width(scene, index)
    return make_step("bottleneck", [index], dims=scene.dims(index), channels=channels, mid=scene.width(choices))


@kind(spatial, weight=6)
def pre_residual(choices: Choices, scene: Scene, index: int) -> Step:
    cin, mid = _width(scene, index), scene.width(choices)
    projection = choices.flag()
    return make_step(
        "pre_residual",
        [index],
        dims=scene.dims(index),
        cin=cin,
        mid=mid,
        cout=scene.width(choices) if projection else cin,
        stride=choices.pick([1, 1, 2]) if projection else 1,
        projection=projection,
        act=_act(choices),
    )


@kind(lambda scene, index: spatial(scene, index) and _width(scene, index) <= WIDTHS[1], weight=6)
def dense(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step(
        "dense",
        [index],
        dims=scene.dims(index),
        cin=_width(scene, index),
        growth=choices.integer(2, 4),
        layers=choices.integer(1, 3),
        bottleneck=choices.flag(),
        act=_act(choices),
    )


@kind(lambda scene, index: spatial(scene, index) and _smallest(scene.shapes[index]) >= 2)
def transition(choices: Choices, scene: Scene, index: int) -> Step:
    cin, cout = _width(scene, index), scene.width(choices)
    return make_step("transition", [index], dims=scene.dims(index), cin=cin, cout=cout, act=_act(choices))


@kind(spatial, weight=4)
def depthwise_separable(choices: Choices, scene: Scene, index: int) -> Step:
    cin, cout = _width(scene, index), scene.width(choices)
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
        act=_act(choices),
    )


@kind(spatial, weight=3)
def squeeze_excite(choices: Choices, scene: Scene, index: int) -> Step:
    channels, mid = _width(scene, index), choices.integer(2, 4)
    gate = choices.pick(["sigmoid", "hardsigmoid"])
    bn = choices.flag()
    return make_step("squeeze_excite", [index], dims=scene.dims(index), channels=channels, mid=mid, bn=bn, gate=gate)


@kind(spatial)
def squeeze_excite_linear(choices: Choices, scene: Scene, index: int) -> Step:
    channels, mid = _width(scene, index), choices.integer(2, 4)
    gate = choices.pick(["sigmoid", "hardsigmoid"])
    return make_step("squeeze_excite_linear", [index], channels=channels, mid=mid, gate=gate)


@kind(spatial)
def spatial_gate(choices: Choices, scene: Scene, index: int) -> Step:
    channels, pooled = _width(scene, index), choices.flag()
    return make_step("spatial_gate", [index], dims=scene.dims(index), channels=channels, pooled=pooled)


@kind(spatial)
def conv_gate(choices: Choices, scene: Scene, index: int) -> Step:
    channels, bn = _width(scene, index), choices.flag()
    return make_step("conv_gate", [index], dims=scene.dims(index), channels=channels, bn=bn)


@kind(even)
def glu(choices: Choices, scene: Scene, index: int) -> Step:
    return make_step("glu", [index], functional=choices.flag())


def _features_of(scene: Scene) -> list[int]:
    return [index for index in scene.where(lambda shape: True) if features(scene, index)]


@kind(lambda scene, index: spatial(scene, index) and bool(_features_of(scene)), weight=3)
def modulate(choices: Choices, scene: Scene, index: int) -> Step:
    by = choices.pick(_features_of(scene))
    return make_step("modulate", [index, by], features=_width(scene, by), channels=_width(scene, index))


@kind(spatial, weight=3)
def inverted_residual(choices: Choices, scene: Scene, index: int) -> Step:
    channels, mid, squeeze = _width(scene, index), scene.width(choices), choices.flag()
    return make_step(
        "inverted_residual",
        [index],
        dims=scene.dims(index),
        channels=channels,
        mid=mid,
        squeeze=squeeze,
        act=_act(choices),
    )


@kind(lambda scene, index: spatial(scene, index) and even(scene, index), weight=3)
def shuffle_unit(choices: Choices, scene: Scene, index: int) -> Step:
    channels = _width(scene, index)
    return make_step("shuffle_unit", [index], dims=scene.dims(index), channels=channels, act=_act(choices))


# kernel, stride, padding, output padding
TRANSPOSED_GEOMETRIES = ((3, 1, 1, 0), (1, 1, 0, 0), (2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0))


@kind(spatial, weight=4)
def transposed_conv(choices: Choices, scene: Scene, index: int) -> Step:
    cin = _width(scene, index)
    groups = choices.pick([1, *_groups(cin)])
    fitting = [g for g in TRANSPOSED_GEOMETRIES if g[1] == 1 or _small_enough(scene, index)]
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
        act=_act(choices),
    )


@kind(spatial, weight=3)
def shared_in_a_row(choices: Choices, scene: Scene, index: int) -> Step:
    bn = choices.pick(["shared", "separate", "none"])
    channels = _width(scene, index)
    return make_step("shared_in_a_row", [index], dims=scene.dims(index), channels=channels, bn=bn, act=_act(choices))


@kind(lambda scene, index: spatial(scene, index) and bool(scene.same_shape(index)), weight=3)
def shared_towers(choices: Choices, scene: Scene, index: int) -> Step:
    other = choices.pick(scene.same_shape(index))
    return make_step(
        "shared_towers",
        [index, other],
        dims=scene.dims(index),
        cin=_width(scene, index),
        cout=scene.width(choices),
        bn=choices.flag(),
        join=choices.pick(["sum", "cat"]),
    )


@kind(lambda scene, index: spatial(scene, index) and bool(scene.same_size(index)), weight=4)
def join(choices: Choices, scene: Scene, index: int) -> Step:
    sources = [index, *(choices.pick(scene.same_size(index)) for _ in range(choices.integer(1, 2)))]
    return make_step(
        "join",
        sources,
        dims=scene.dims(index),
        widths=tuple(_width(scene, source) for source in sources),
        cout=scene.width(choices),
        bns=tuple(choices.integer(0, 1) for _ in sources),
        act=_act(choices),
    )
