"""How each kind of step is drawn: a function a kind, which is given a tensor that fits and decides the rest.

The functions lie in a file a topic, beside the modules of the same topic in `tests.net_modules`. To add a pattern: its
module there, its function here and in the table below, and its name in `tests.net_patterns`, so that it must occur.
"""

from __future__ import annotations

from tests.net_choices import Choices
from tests.net_draws import (
    across,
    concatenation,
    convolutions,
    dense,
    features,
    gates,
    pointwise,
    rearrangement,
    residual,
    sharing,
    sizes,
    sums,
)
from tests.net_draws.base import Kind
from tests.net_scene import Scene
from tests.net_spec import Step

# The order decides what a seed draws. Common kinds come first, because hypothesis shrinks towards the first ones.
KINDS: tuple[Kind, ...] = (
    convolutions.conv_bn_act,
    convolutions.conv,
    convolutions.grouped_conv,
    convolutions.grouped_conv_bn_act,
    convolutions.depthwise_conv,
    pointwise.batch_norm,
    pointwise.norm_act,
    pointwise.activation,
    pointwise.activation_in_place,
    pointwise.prelu,
    sums.add,
    sums.add_in_place,
    sums.add_to_itself,
    sums.multiply,
    sums.maximum,
    concatenation.cat,
    concatenation.cat_with_input,
    concatenation.cat_positions,
    concatenation.cat_batch,
    concatenation.stack,
    concatenation.stack_conv,
    rearrangement.pixel_shuffle,
    rearrangement.pixel_unshuffle,
    sums.sum_in_place,
    rearrangement.split,
    rearrangement.interleave,
    rearrangement.shuffle,
    sizes.pool,
    sizes.upsample,
    pointwise.dropout,
    pointwise.layer_scale,
    pointwise.constant,
    across.channel_reduction,
    across.by_channel_mean,
    features.flatten,
    features.global_pool,
    features.linear,
    features.channels_last,
    sizes.pad,
    across.unusual,
    residual.residual,
    residual.bottleneck,
    residual.pre_residual,
    dense.dense,
    dense.transition,
    convolutions.depthwise_separable,
    gates.squeeze_excite,
    gates.squeeze_excite_linear,
    gates.spatial_gate,
    gates.conv_gate,
    gates.glu,
    gates.modulate,
    residual.inverted_residual,
    rearrangement.shuffle_unit,
    convolutions.transposed_conv,
    sharing.shared_in_a_row,
    sharing.shared_towers,
    sums.join,
)


def draw_step(choices: Choices, scene: Scene) -> Step | None:
    """Any step, or none where no tensor fits it.

    The kinds to pick from never change, so that the same decision means the same kind when hypothesis takes out a step.
    """
    picked = choices.pick([kind for kind in KINDS for _ in range(kind.weight)])
    fitting = [index for index in scene.where(lambda shape: True) if picked.accept(scene, index)]
    return picked.draw(choices, scene, scene.source(choices, fitting)) if fitting else None
