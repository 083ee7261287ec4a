"""Convolutions and linear layers: they write labels of their own."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otprune.channels.graph import Mix
from otprune.channels.labels import laid_out
from otprune.channels.rules.unknown import freeze_arguments

if TYPE_CHECKING:
    from otprune.channels.tracer import Call, Parameter, Tracer

aten = torch.ops.aten

ROWS, COLUMNS = 0, 1


def convolution(tracer: "Tracer", call: "Call") -> None:
    """A convolution of any dimension, transposed or not, with any number of groups."""
    source, weight, bias, _, padding, _, transposed, _, groups = call.args
    parameter = tracer.parameter(weight)
    if parameter is None or parameter.axes != tuple(range(weight.dim())) or not _may_regroup(tracer, parameter, groups):
        freeze_arguments(tracer, call, "the convolution's weight is computed, not a parameter of a module")
        return
    reads = _read(tracer, call, source, 1)
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
    if parameter is None or not _is_matrix(parameter) or call.kwargs:
        freeze_arguments(tracer, call, "a matrix product that is no plain linear layer mixes its channels")
        return
    reads = _read(tracer, call, source, source.dim() - 1)
    writes = tracer.fresh(call.out.shape[-1])
    transposed = parameter.axes[-2:] == (0, 1)
    rows, columns = (reads, writes) if transposed else (writes, reads)
    tracer.use(parameter.name, ROWS, rows)
    tracer.use(parameter.name, COLUMNS, columns)
    _write(tracer, parameter.name, bias[0] if bias else None, reads[None], writes[None], transposed, padded=False)
    tracer.mark(call.out, laid_out(writes, call.out.dim() - 1, call.out.dim()))


def _is_matrix(parameter: "Parameter") -> bool:
    *batch, rows, columns = parameter.axes
    return {rows, columns} == {ROWS, COLUMNS} and not any(batch)


def _read(tracer: "Tracer", call: "Call", source: Tensor, dim: int) -> Tensor:
    parameter = tracer.parameter(source)
    if parameter is not None:
        tracer.freeze_parameter(parameter.name, f"{call.func} reads it as its input")
    return tracer.lane(source, dim, "different channels meet one column of a weight")


def _write(
    tracer: "Tracer", weight: str, bias: Tensor | None, reads: Tensor, writes: Tensor, transposed: bool, padded: bool
) -> None:
    parameter = tracer.parameter(bias)
    name = None
    if bias is not None and parameter is not None and parameter.axes == (0,) and len(bias) == writes.numel():
        name = parameter.name
        tracer.use(name, 0, writes.reshape(-1))
    elif bias is not None:
        tracer.freeze(writes, "the bias is not a parameter with one value a channel")
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
