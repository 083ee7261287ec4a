"""Run a model once and write down what its operators do to channels."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.abstract import watch
from otprune.channels.evaluation import freeze_what_evaluation_adds, not_looked_at
from otprune.channels.graph import Affine, Carry, ChannelGraph, Frozen, Node, Signature
from otprune.channels.tracer import Tracer, sizes_of
from otprune.errors import ExampleError, OtpruneError
from otprune.inputs import tensors_in

_RUN_ON_DATA = (
    "the model looks at its data, so it was run on it: numbers that its code computes from the number of channels were "
    "not compared. Compare outputs with ot.verify"
)


def trace(model: nn.Module, example: Any) -> ChannelGraph:
    """Find out which channels of `model` belong together, by running it once on `example`.

    The model is left as it was. Print the result to see what is frozen and which line is the cause, and what could
    not be found out.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> list(trace(net, torch.zeros(1, 3, 8, 8)).batch_norms)
    ['1']
    """
    tracer, out, training = _watched(model, example)
    evaluated: Counter[Signature] | None = tracer.signatures
    if training:
        evaluated = freeze_what_evaluation_adds(tracer, example, lambda added: Tracer(model, added))
    tracer.refuse_harmful_ending(out)
    for tensor in tensors_in(out):
        labels = tracer.labels(tensor).reshape(-1).numpy()
        parameter = tracer.parameter(tensor)
        name = None if parameter is None else parameter.name
        tracer.nodes.append(Frozen(labels, "is an output of the model", "model's end", name, expected=True))
    tracer.nodes += tracer.memory.nodes(tracer.on_data)
    if not tracer.on_meta:
        tracer.notes.append(_RUN_ON_DATA)
    nodes = _without_unread_results(tracer)
    calls = Counter(node.layer for node in nodes if isinstance(node, Affine))

    def may_select(node: Affine) -> bool:
        return node.selectable and calls[node.layer] == 1 and _is_module(model, node.layer)

    return ChannelGraph(
        nodes=tuple(replace(n, selectable=may_select(n)) if isinstance(n, Affine) else n for n in nodes),
        ties=tuple(tracer.ties),
        reshaped=np.unique(np.concatenate([np.zeros(0, np.int64), *tracer.reshaped])),
        count=tracer.count,
        shapes={name: tuple(t.shape) for name, t in tracer.state.items()},
        outputs=[sizes_of(tensor, tracer.on_data) for tensor in tensors_in(out)],
        numbers=tracer.numbers,
        operators={True: tracer.signatures if training else None, False: evaluated},
        notes=tuple(tracer.notes),
    )


def _watched(model: nn.Module, example: Any) -> tuple[Tracer, Any, bool]:
    """The trace, the output, and whether it was in training mode: a model may want more for that, such as targets."""
    try:
        return *watch(model, example, lambda: Tracer(model), training=True), True
    except ExampleError as error:
        try:
            tracer, out = watch(model, example, lambda: Tracer(model), training=False)
        except OtpruneError:
            raise error from error.__cause__
        if unread := tracer.unread_parameters():  # by an auxiliary head, say, whose input would shrink without it
            raise ExampleError(
                f"{error} Evaluation mode is not enough: it does not use {unread[0]}."
            ) from error.__cause__
        said = not_looked_at("training", error)
        tracer.notes.append(f"{said}. If it does more then, see that the pruned model still trains")
        return tracer, out, False


def _without_unread_results(tracer: Tracer) -> list[Node]:
    """Nodes without those for results that an operator has and the model ignores, such as the places of maxima."""
    read = tracer.read_labels()
    return [n for n in tracer.nodes if not isinstance(n, Carry) or n.keeps != "nothing" or read[n.writes].any()]


def _is_module(model: nn.Module, layer: str) -> bool:
    return isinstance(model.get_submodule(layer), _BatchNorm)
