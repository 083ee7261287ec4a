"""Convolutions and linear layers: they write labels of their own."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otprune.channels.graph import Mix
from otprune.channels.labels import along, laid_out
from otprune.channels.rules.unknown import freeze_arguments

if TYPE_CHECKING:
    from otprune.channels.trace import Call, Parameter, Tracer

aten = torch.ops.aten

ROWS, COLUMNS = 0, 1


def convolution(tracer: "Tracer", call: "Call") -> None:
    """A convolution of any dimension, transposed or not, with any number of groups."""
    source, weight, bias, _, padding, _, transposed, _, groups = call.args
    parameter = tracer.parameter(weight)
    if parameter is None or parameter.axes != tuple(range(weight.dim())) or not _may_regroup(tracer, parameter, groups):
        freeze_arguments(tracer, call, "the convolution's weight is computed, not a parameter of a module")
        return
    reads = _one_label_a_channel(tracer, source, 1)
    writes = tracer.fresh(call.out.shape[1])
    rows, columns = (reads, writes) if transposed else (writes, reads)
    tracer.use(parameter.name, ROWS, rows)
    tracer.use(parameter.name, COLUMNS, columns)
    _write(tracer, parameter.name, bias, reads.view(groups, -1), writes.view(groups, -1), transposed, any(padding))
    tracer.mark(call.out, laid_out(writes, 1, call.out.dim()))


def matrix_product(tracer: "Tracer", call: "Call") -> None:
    """A linear layer as ATen sees it: activations times the transposed weight, with or without a bias or a batch."""
    *bias, source, weight = call.args[:3]
    parameter = tracer.parameter(weight)
    if parameter is None or parameter.axes[-2:] not in ((0, 1), (1, 0)):
        freeze_arguments(tracer, call, "a matrix product of two computed tensors mixes its channels")
        return
    reads = _one_label_a_channel(tracer, source, source.dim() - 1)
    writes = tracer.fresh(call.out.shape[-1])
    transposed = parameter.axes[-2:] == (0, 1)
    rows, columns = (reads, writes) if transposed else (writes, reads)
    tracer.use(parameter.name, ROWS, rows)
    tracer.use(parameter.name, COLUMNS, columns)
    _write(tracer, parameter.name, bias[0] if bias else None, reads[None], writes[None], transposed, padded=False)
    tracer.mark(call.out, laid_out(writes, call.out.dim() - 1, call.out.dim()))


def _one_label_a_channel(tracer: "Tracer", source: Tensor, dim: int) -> Tensor:
    """Whatever meets the same column of a weight is one channel."""
    lanes = along(tracer.labels(source), dim, source.shape[dim])
    if lanes.shape[1] > 1:
        tracer.tie(lanes[:, :1], lanes, "different channels meet one column of a weight")
    return lanes[:, 0]


def _write(
    tracer: "Tracer", weight: str, bias: Tensor | None, reads: Tensor, writes: Tensor, transposed: bool, padded: bool
) -> None:
    parameter = tracer.parameter(bias)
    if parameter is not None:
        tracer.use(parameter.name, 0, writes.reshape(-1))
    elif bias is not None:
        tracer.freeze(writes, "the bias is computed, not a parameter")
    name = None if parameter is None else parameter.name
    tracer.nodes.append(Mix(weight, name, reads.numpy(), writes.numpy(), transposed, padded))


def _may_regroup(tracer: "Tracer", parameter: "Parameter", groups: int) -> bool:
    """The number of groups can change only where a module holds it."""
    if groups == 1:
        return True
    return getattr(tracer.model.get_submodule(parameter.name.rpartition(".")[0]), "groups", None) == groups


RULES = {
    aten.convolution.default: convolution,
    aten.mm.default: matrix_product,
    aten.addmm.default: matrix_product,
    aten.bmm.default: matrix_product,
}
