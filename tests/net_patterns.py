"""Which patterns a random network contains: what its record counts, and what the generator must not forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.net_layers import ACTIVATIONS
from tests.net_spec import Option, Spec, Step

Predicate = Callable[[Spec], bool]
ENDS_IN_BATCH_NORM = ("batch_norm", "conv_bn_act", "norm_act", "depthwise_separable")


def patterns(spec: Spec) -> list[str]:
    """The names of the patterns in a network.

    >>> from tests.net_spec import make_step
    >>> norm = make_step("batch_norm", [0], dims=2, channels=3, affine=True)
    >>> patterns(Spec(inputs=((3, 6, 6),), steps=(norm,), outputs=(1,)))
    ['batch norm on an input', 'batch norm as output', '2-d']
    """
    return [name for name, present in PATTERNS.items() if present(spec)]


def _has(*kinds: str, **options: Option) -> Predicate:
    """Whether there is a step of one of these kinds with all of these options."""

    def present(spec: Spec) -> bool:
        return any(step.kind in kinds and options.items() <= dict(step.options).items() for step in _steps(spec))

    return present


def _some(kinds: tuple[str, ...], accept: Callable[[dict[str, Option]], bool]) -> Predicate:
    """Whether there is a step of one of these kinds whose options are acceptable."""

    def present(spec: Spec) -> bool:
        return any(step.kind in kinds and accept(dict(step.options)) for step in _steps(spec))

    return present


def _steps(spec: Spec) -> Iterator[Step]:
    yield from spec.steps
    if spec.auxiliary:
        yield spec.auxiliary


def _makers(spec: Spec) -> dict[int, str]:
    """The kind of step that makes each tensor; inputs are made by "input"."""
    makers = dict.fromkeys(range(len(spec.inputs)), "input")
    for step, made in zip(spec.steps, spec.made(), strict=True):
        makers |= dict.fromkeys(made, step.kind)
    return makers


def _reads(kind: str, *groups: tuple[str, ...]) -> Predicate:
    """Whether a step of this kind reads tensors from every one of these groups of makers."""

    def present(spec: Spec) -> bool:
        makers = _makers(spec)
        read = [{makers[index] for index in step.inputs} for step in spec.steps if step.kind == kind]
        return any(all(kinds & set(group) for group in groups) for kinds in read)

    return present


def _followed_by_flatten(pooled: bool) -> Predicate:
    """Whether a linear layer reads all values of a tensor, or one a channel."""
    return _reads("linear", ("global_pool",) if pooled else ("flatten",))


def _adds_to_itself(spec: Spec) -> bool:
    return any(step.kind == "add" and len(set(step.inputs)) == 1 for step in spec.steps)


def _output_made_by(*kinds: str) -> Predicate:
    return lambda spec: any(_makers(spec)[index] in kinds for index in spec.outputs)


def _never_read(spec: Spec) -> bool:
    read = {index for step in _steps(spec) for index in step.inputs} | set(spec.outputs)
    return bool(_makers(spec).keys() - read)


def _read_and_output(spec: Spec) -> bool:
    return bool({index for step in spec.steps for index in step.inputs} & set(spec.outputs))


def _activates(name: str) -> Predicate:
    return lambda spec: any(("act", name) in step.options for step in spec.steps)


def _dims(dims: int) -> Predicate:
    return lambda spec: any(len(shape) == dims + 1 for shape in spec.inputs)


CONVS = ("conv", "conv_bn_act")
PATTERNS: dict[str, Predicate] = {
    "conv, batch norm, activation": _has("conv_bn_act"),
    "residual, identity": _has("residual", projection=False),
    "residual, projection": _has("residual", projection=True),
    "residual, in place": _has("bottleneck"),
    "several branches in one sum": _some(("residual",), lambda options: options["branches"] != 1),
    "pre-activation residual, identity": _has("pre_residual", projection=False),
    "pre-activation residual, projection": _has("pre_residual", projection=True),
    "final batch norm": _reads("norm_act", ("pre_residual", "dense", "add", "cat")),
    "dense": _has("dense", bottleneck=False),
    "dense with bottleneck": _has("dense", bottleneck=True),
    "transition": _has("transition"),
    "depthwise": _has("depthwise_separable", multiplier=1),
    "depthwise, several filters a channel": _has("depthwise_separable", multiplier=2),
    "depthwise alone": _some(("conv",), lambda options: 1 != options["groups"] == options["cin"]),
    "inverted residual": _has("inverted_residual", squeeze=False),
    "inverted residual with squeeze and excite": _has("inverted_residual", squeeze=True),
    "grouped": _some(CONVS, lambda options: options["groups"] not in (1, options["cin"])),
    "chunk": _has("split", style="chunk"),
    "slice": _has("split", style="slice"),
    "split": _has("split", style="split"),
    "tensor_split": _has("split", style="tensor_split"),
    "strided slice": _has("interleave"),
    "shuffle": _has("shuffle"),
    "shuffle unit": _has("shuffle_unit"),
    "squeeze and excite": _has("squeeze_excite", bn=False),
    "squeeze and excite with batch norm": _has("squeeze_excite", bn=True),
    "squeeze and excite by linear layers": _has("squeeze_excite_linear"),
    "spatial gate": _has("spatial_gate", pooled=False),
    "spatial gate of pooled channels": _has("spatial_gate", pooled=True),
    "gate by 1×1 conv": _has("conv_gate"),
    "gated half": _has("glu", functional=False),
    "F.glu": _has("glu", functional=True),
    "modulation": _has("modulate"),
    "product": _has("multiply"),
    "maximum": _has("maximum"),
    "flatten into linear": _followed_by_flatten(pooled=False),
    "pool into linear": _followed_by_flatten(pooled=True),
    "transposed conv": _has("transposed_conv", groups=1),
    "grouped transposed conv": _some(("transposed_conv",), lambda options: options["groups"] != 1),
    "linear with batch norm": _has("linear", bn=True),
    "linear on channels last": _has("channels_last"),
    "shared conv": _has("shared_in_a_row", bn="none"),
    "shared conv, separate batch norms": _has("shared_in_a_row", bn="separate"),
    "shared conv and batch norm": _has("shared_in_a_row", bn="shared"),
    "shared towers, summed": _has("shared_towers", join="sum"),
    "shared towers, side by side": _has("shared_towers", join="cat"),
    "sum of other tensors": _has("add"),
    "sum in place": _has("add", style="inplace"),
    "sum of a stack": _has("add", style="stack"),
    "sum with itself": _adds_to_itself,
    "sum of conv and batch norm": _some(("join",), lambda options: options["bns"] in ((0, 1), (1, 0))),
    "sum with a branch without batch norm": _has("residual", last_bn=False),
    "concatenation": _has("cat"),
    "concatenation along positions": _has("cat_positions"),
    "concatenation along the batch": _has("cat_batch", bn=False),
    "concatenation along the batch into a batch norm": _has("cat_batch", bn=True),
    "stack as channels": _has("stack", style="beside"),
    "stack as interleaved channels": _has("stack", style="interleaved"),
    "mean of a stack": _has("stack", style="mean"),
    "maximum of a stack": _has("stack", style="max"),
    "conv over a stack": _has("stack_conv"),
    "pixel shuffle": _has("pixel_shuffle"),
    "pixel unshuffle": _has("pixel_unshuffle"),
    "sum with an activation in place": _some(
        ("sum_in_place",), lambda options: options["style"] in ("method", "functional", "module")
    ),
    "sum with a number added in place": _has("sum_in_place", style="number"),
    "sum with an operand added in place": _has("sum_in_place", style="operand"),
    "sum scaled in place, the result ignored": _has("sum_in_place", style="ignored"),
    "concatenation with an input": _reads("cat", ("input",), ENDS_IN_BATCH_NORM),
    "batch norm on an input": _reads("batch_norm", ("input",)),
    "batch norm as output": _output_made_by("batch_norm"),
    "batch norm on features": _has("batch_norm", "norm_act", dims=0),
    "batch norm without affine": _has("batch_norm", "conv_bn_act", affine=False),
    "conv with bias": _has(*CONVS, bias=True),
    "conv without bias": _has(*CONVS, bias=False),
    "conv with padding": _some(CONVS, lambda options: options["padding"] != 0),
    "conv without padding": _some(CONVS, lambda options: options["kernel"] != 1 and options["padding"] == 0),
    "conv with stride": _some(CONVS, lambda options: options["stride"] != 1),
    "conv with dilation": _some(CONVS, lambda options: options["dilation"] != 1),
    "max pool": _has("pool", style="max"),
    "average pool": _has("pool", style="avg"),
    "padded max pool": _has("pool", style="max_padded"),
    "padded average pool": _has("pool", style="avg_padded"),
    "adaptive average pool": _has("pool", style="adaptive_avg"),
    "adaptive max pool": _has("pool", style="adaptive_max"),
    "F.interpolate": _has("upsample", style="functional"),
    "nn.Upsample": _has("upsample", style="module"),
    "dropout": _has("dropout"),
    "layer scale": _has("layer_scale"),
    "number added": _has("constant", style="number"),
    "parameter added": _has("constant", style="parameter"),
    "buffer added": _has("constant", style="buffer"),
    "mean of channels": _has("channel_reduction", style="mean"),
    "sum of channels": _has("channel_reduction", style="sum"),
    "maximum of channels": _has("channel_reduction", style="max"),
    "softmax of channels": _has("channel_reduction", style="softmax"),
    "channels centred": _has("channel_reduction", style="centre"),
    "times the mean of channels": _has("by_channel_mean"),
    "zeros around the edges": _has("pad", style="edges"),
    "zeros as channels": _has("pad", style="channels"),
    "activation with parameters": _has("prelu"),
    "unusual operator": _has("unusual"),
    "several inputs": lambda spec: len(spec.inputs) > 1,
    "tuple of outputs": lambda spec: spec.container == "tuple" and len(spec.outputs) > 1,
    "dictionary of outputs": lambda spec: spec.container == "dict",
    "auxiliary head": lambda spec: spec.auxiliary is not None,
    "tensor that nobody reads": _never_read,
    "output that is read": _read_and_output,
    "features alone": _dims(0),
    "1-d": _dims(1),
    "2-d": _dims(2),
    "3-d": _dims(3),
    **{f"activation {name}": _activates(name) for name in ACTIVATIONS if name != "none"},
}
