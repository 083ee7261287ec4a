"""Batch norms: one label read and one label written for each channel."""

from typing import TYPE_CHECKING

import torch

from otprune.channels.graph import Affine
from otprune.channels.labels import laid_out
from otprune.channels.rules.unknown import freeze_arguments
from otprune.location import arguments_of
from otprune.shortcuts import BATCH_NORMS

if TYPE_CHECKING:
    from otprune.channels.tracer import Call, Tracer

aten = torch.ops.aten

WITHOUT_STATISTICS = frozenset({aten._native_batch_norm_legit.no_stats})
SETTLED = frozenset({aten._native_batch_norm_legit_no_training.default, aten._batch_norm_no_update.default})


def batch_norm(tracer: "Tracer", call: "Call") -> None:
    """A batch norm, affine or not, whose scaling factors and shifts are the `weight` and `bias` of one module."""
    source, tensors = call.args[0], list(call.args[1 : 3 if call.func in WITHOUT_STATISTICS else 5])
    parameters = [tracer.parameter(tensor) for tensor in tensors]
    if any(p is None and t is not None for p, t in zip(parameters, tensors, strict=True)) or not any(parameters):
        freeze_arguments(tracer, call, "the batch norm's tensors are computed, not its own")
        return
    names = [None if p is None else p.name for p in parameters] + [None] * (4 - len(parameters))
    weight, bias, mean, var = names
    layer, _, _ = next(filter(None, names)).rpartition(".")
    if weight not in (None, _in(layer, "weight")) or bias not in (None, _in(layer, "bias")):
        freeze_arguments(tracer, call, f"{weight} and {bias} are not the weight and bias of one batch norm")
        return
    reads = tracer.lane(source, 1, "different channels meet one scaling factor")
    writes = tracer.fresh(source.shape[1])
    for name in filter(None, names):
        tracer.use(name, 0, writes)
    incoming, picks = getattr(source, "_otprune_selection", (reads, torch.arange(len(reads))))
    tracer.nodes.append(
        Affine(
            layer=layer,
            weight=weight,
            bias=bias,
            mean=mean,
            var=var,
            eps=call.args[-1] if isinstance(call.args[-1], float) else call.args[-2],
            settled=call.func in SETTLED or call.args[5] is False,
            positions=source[0, 0].numel(),
            incoming=incoming.numpy(),
            picks=picks.numpy(),
            writes=writes.numpy(),
            selectable=any(argument is source for argument in arguments_of(tracer.model.get_submodule(layer))[:1]),
        )
    )
    tracer.mark(call.out[0], laid_out(writes, 1, source.dim()))


def _in(layer: str, name: str) -> str:
    return f"{layer}.{name}" if layer else name


RULES = dict.fromkeys(BATCH_NORMS, batch_norm)
