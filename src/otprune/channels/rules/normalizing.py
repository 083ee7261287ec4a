"""Batch norms: one label read and one label written for each channel."""

from typing import TYPE_CHECKING

import torch

from otprune.channels.graph import Affine
from otprune.channels.labels import along, laid_out
from otprune.channels.rules.unknown import freeze_arguments
from otprune.shortcuts import BATCH_NORMS

if TYPE_CHECKING:
    from otprune.channels.trace import Call, Tracer

aten = torch.ops.aten

WITHOUT_STATISTICS = frozenset({aten._native_batch_norm_legit.no_stats})


def batch_norm(tracer: "Tracer", call: "Call") -> None:
    """A batch norm, affine or not, whose tensors are parameters and buffers of one module."""
    source, tensors = call.args[0], list(call.args[1 : 3 if call.func in WITHOUT_STATISTICS else 5])
    parameters = [tracer.parameter(tensor) for tensor in tensors]
    if any(p is None and t is not None for p, t in zip(parameters, tensors, strict=True)) or not any(parameters):
        freeze_arguments(tracer, call, "the batch norm's tensors are computed, not its own")
        return
    lanes = along(tracer.labels(source), 1, source.shape[1])
    if lanes.shape[1] > 1:
        tracer.tie(lanes[:, :1], lanes, "different channels meet one scaling factor")
    writes = tracer.fresh(source.shape[1])
    names = [None if p is None else p.name for p in parameters] + [None] * (4 - len(parameters))
    for name in filter(None, names):
        tracer.use(name, 0, writes)
    incoming, picks = getattr(source, "_otprune_selection", (lanes[:, 0], torch.arange(len(lanes))))
    tracer.nodes.append(
        Affine(
            next(filter(None, names)).rpartition(".")[0],
            names[0], names[1], names[2], names[3],
            call.args[-1] if isinstance(call.args[-1], float) else call.args[-2],
            source[0, 0].numel(), incoming.numpy(), picks.numpy(), writes.numpy(), False,
        )
    )  # fmt: skip
    tracer.mark(call.out[0], laid_out(writes, 1, source.dim()))


RULES = dict.fromkeys(BATCH_NORMS, batch_norm)
