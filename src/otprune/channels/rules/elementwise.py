"""Operators that work element by element: they keep labels, and tie the labels of several operands."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from otprune.channels.graph import Attached, Carry, Hole, Pointwise
from otprune.channels.labels import broadcast, laid_out_fully, varying
from otprune.channels.rules.unknown import freeze_arguments
from otprune.location import innermost_module

if TYPE_CHECKING:
    from otprune.channels.tracer import Call, Parameter, Tracer

aten = torch.ops.aten


def pointwise(tracer: "Tracer", call: "Call") -> None:
    """Tie the operands' labels, element by element, and give the result labels of its own in the same channels."""
    tensors = [argument for argument in call.args if isinstance(argument, Tensor)]
    if not any(tracer.is_labelled(tensor) for tensor in tensors):
        _without_channels(tracer, call, tensors)
        return
    if not isinstance(call.out, Tensor):
        freeze_arguments(tracer, call, f"{call.func} has several results")
        return
    rank = call.out.dim()
    padded = [_padded(tracer.labels(tensor), rank) for tensor in tensors]
    wide = {dim for labels in padded for dim in varying(labels)}
    aligned = [_spans(tensor, call.out, wide) for tensor in tensors]
    _freeze_spread(tracer, tensors, aligned)
    taking_part = [labels for labels, full in zip(padded, aligned, strict=True) if full]
    if not any(tracer.is_labelled(t) and full for t, full in zip(tensors, aligned, strict=True)):
        _without_channels(tracer, call, tensors)
        return
    _record(tracer, call, tensors, aligned, taking_part)


def _record(tracer: "Tracer", call: "Call", tensors: list[Tensor], aligned: list[bool], labels: list[Tensor]) -> None:
    parameters = [tracer.parameter(tensor) for tensor in tensors]
    shape = broadcast(labels)[0].shape
    operands = [
        _padded(tracer.labels(t), len(shape)).expand(shape).reshape(-1) if full and p is None else None
        for t, full, p in zip(tensors, aligned, parameters, strict=True)
    ]
    present = [labels for labels in operands if labels is not None]
    for other in present[1:]:
        tracer.freeze_lonely(present[0], other, f"{call.func} combines it with a tensor that has no channels")
    writes = tracer.fresh(*shape)
    holes = iter(range(len(tensors)))
    tracer.nodes.append(
        Pointwise(
            call.func,
            tuple(Hole(next(holes)) if isinstance(argument, Tensor) else argument for argument in call.args),
            call.kwargs,
            tuple(None if labels is None else labels.numpy() for labels in operands),
            tuple(_one_value_each(tracer, t, p, writes) for t, p in zip(tensors, parameters, strict=True)),
            tuple(tensor.shape == call.out.shape for tensor in tensors),
            tuple(tensor.dtype for tensor in tensors),
            writes.reshape(-1).numpy(),
            innermost_module() if len(present) > 1 else None,
        )
    )
    for tensor, parameter in zip(tensors, parameters, strict=True):
        if parameter is not None:
            _attach(tracer, tensor, parameter, writes)
    tracer.mark(call.out, writes)


def _one_value_each(tracer: "Tracer", tensor: Tensor, parameter: "Parameter | None", writes: Tensor) -> str | None:
    """The parameter's name where it has one value a channel or one for all; a batch norm's own would be masked."""
    in_line = (1,) * (writes.dim() - tensor.dim()) + tuple(tensor.shape) == tuple(writes.shape)
    if parameter is None or not (in_line or tensor.numel() == 1) or len(varying(writes)) > 1:
        return None
    owner = tracer.model.get_submodule(parameter.name.rpartition(".")[0])
    return None if isinstance(owner, _NormBase) else parameter.name


def _padded(labels: Tensor, rank: int) -> Tensor:
    """Labels right-aligned to `rank` dimensions, as broadcasting aligns the tensors themselves."""
    return labels.reshape((1,) * (rank - labels.dim()) + tuple(labels.shape))


def _spans(tensor: Tensor, out: Tensor, wide: set[int]) -> bool:
    """Whether the tensor has the result's size wherever channels lie; otherwise one value is spread over many."""
    lead = out.dim() - tensor.dim()
    return all(dim >= lead and tensor.shape[dim - lead] == out.shape[dim] for dim in wide)


def _freeze_spread(tracer: "Tracer", tensors: list[Tensor], aligned: list[bool]) -> None:
    for tensor, full in zip(tensors, aligned, strict=True):
        if not full and tracer.is_labelled(tensor):
            tracer.freeze(tracer.labels(tensor), "one channel is spread over many")


def _attach(tracer: "Tracer", tensor: Tensor, parameter: "Parameter", writes: Tensor) -> None:
    """A parameter that meets channels element by element shrinks with them; one value for all of them is only read."""
    lead = writes.dim() - tensor.dim()
    wide = [dim for dim, size in enumerate(tensor.shape) if size > 1 and writes.shape[dim + lead] > 1]
    axes = [(dim, axis) for dim in wide if (axis := parameter.axes[dim]) is not None]
    for dim, axis in axes:
        lane = writes.movedim(dim + lead, 0).flatten(1)
        tracer.tie(lane[:, :1], lane, "positions share a parameter")
        tracer.use(parameter.name, axis, lane[:, 0])
        tracer.nodes.append(Attached(parameter.name, axis, lane[:, 0].numpy()))
    if not axes:
        tracer.nodes.append(Attached(parameter.name, 0, writes.reshape(-1)[:0].numpy()))


def _without_channels(tracer: "Tracer", call: "Call", tensors: list[Tensor]) -> None:
    for tensor in tensors:
        parameter = tracer.parameter(tensor)
        if parameter is not None:
            tracer.freeze_parameter(parameter.name, f"another tensor is computed from it by {call.func}")


def same_values(tracer: "Tracer", call: "Call") -> None:
    """A copy, a change of layout: values and labels stay."""
    source = call.args[0]
    parameter = tracer.parameter(source)
    if parameter is not None:
        tracer.mark_parameter(call.out, parameter)
    elif tracer.is_labelled(source):
        tracer.mark(call.out, tracer.labels(source))


def cast(tracer: "Tracer", call: "Call") -> None:
    """Another type rounds the values of channels, or cuts them off; a parameter is still that parameter."""
    source = call.args[0]
    if source.dtype == call.out.dtype or tracer.parameter(source) is not None:
        same_values(tracer, call)
    else:
        pointwise(tracer, replace(call, kwargs={"dtype": call.out.dtype}))


def dropout(tracer: "Tracer", call: "Call") -> None:
    """Dropout in training: zero stays zero."""
    source = tracer.labels(call.args[0])
    if tracer.is_labelled(call.args[0]):
        writes = tracer.fresh(*source.shape)
        tracer.nodes.append(Carry(source.reshape(-1).numpy(), writes.reshape(-1).numpy(), "zeros"))
        tracer.mark(call.out[0], writes)


def like(tracer: "Tracer", call: "Call") -> None:
    """A new tensor in the shape of another: the same channels with values of its own."""
    if tracer.is_labelled(call.args[0]):
        source = tracer.labels(call.args[0])
        writes = tracer.fresh(*source.shape)
        tracer.nodes.append(Carry(source.reshape(-1).numpy(), writes.reshape(-1).numpy(), "nothing"))
        tracer.mark(call.out, writes)


def overwritten(tracer: "Tracer", call: "Call") -> None:
    """One tensor copied into another."""
    target, source = call.args[:2]
    if tracer.is_labelled(target) or tracer.parameter(target) is not None:
        freeze_arguments(tracer, call, f"{call.func} overwrites a tensor that has channels")
    elif tracer.is_labelled(source):
        freeze_arguments(tracer, call, f"{call.func} copies it into a tensor of fixed size")


def prelu(tracer: "Tracer", call: "Call") -> None:
    """The planner takes a zero for a zero whatever the slope; a slope that is computed could be that zero."""
    if tracer.parameter(call.args[1]) is None:
        freeze_arguments(tracer, call, f"the slope of {call.func} is computed, not a parameter")
    else:
        pointwise(tracer, call)


def gated_half(tracer: "Tracer", call: "Call") -> None:
    """GLU: the first half of the channels, each times the sigmoid of its partner in the second half."""
    source = call.args[0]
    dim = (call.args[1] if len(call.args) > 1 else -1) % source.dim()
    if not tracer.is_labelled(source):
        return
    values, gates = torch.chunk(laid_out_fully(tracer.labels(source), dim, source.shape[dim]), 2, dim)
    tracer.tie(values, gates, "gated by a tensor that has no channels")
    writes = tracer.fresh(*values.shape)
    operands = (values.reshape(-1).numpy(), None)
    tracer.nodes.append(
        Pointwise(
            aten.mul.Tensor,
            (Hole(0), Hole(1)),
            {},
            operands,
            (None, None),
            (False, False),
            (source.dtype, source.dtype),
            writes.reshape(-1).numpy(),
        )
    )
    tracer.mark(call.out, writes)


RULES = {
    **dict.fromkeys(
        (
            *(aten.hardswish.default, aten.hardswish_.default, aten.mish_.default, aten.threshold_.default),
            aten.rsub.Tensor,
        ),
        pointwise,
    ),
    aten._prelu_kernel.default: prelu,
    aten.glu.default: gated_half,
    **dict.fromkeys(
        (
            aten.clone.default,
            aten.detach.default,
            aten.alias.default,
            aten.lift_fresh.default,
            aten.contiguous.default,
        ),
        same_values,
    ),
    aten._to_copy.default: cast,
    aten.native_dropout.default: dropout,
    **dict.fromkeys(
        (
            aten.empty_like.default,
            aten.zeros_like.default,
            aten.ones_like.default,
            aten.full_like.default,
            aten.rand_like.default,
            aten.randn_like.default,
            *(aten.bernoulli.default, aten.bernoulli.p, aten.bernoulli_.float, aten.bernoulli_.Tensor),
            *(aten.fill_.Scalar, aten.fill_.Tensor),
        ),
        like,
    ),
    aten.copy_.default: overwritten,
}
