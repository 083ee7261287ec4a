"""The residual branches of a model, and which of them could go as a whole."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from otprune.channels.graph import Affine, ChannelGraph, Pointwise, reads_of
from otprune.planning.absence import Absence
from otprune.planning.branches import Branches, branch_ending_at, branches_together, removed_layers

PATIENCE_SECONDS = 30.0  # a model that looks at its data has to be run on it, again and again
NOT_ASKED = "the model's code objects to some, and runs too long to be asked of each"


@dataclass(frozen=True)
class Branch:
    """A residual branch: the batch norm at its end, all that go with it, and why it cannot go, if so."""

    end: str
    layers: list[str]
    obstacle: str | None


def residual_branches(graph: ChannelGraph, model: nn.Module, absence: Absence) -> list[Branch]:
    """Every branch that a sum adds, in the order they end.

    >>> import torch
    >>> from otprune.channels.trace import trace
    >>> from otprune.models import digits_net
    >>> net, x = digits_net(), torch.zeros(1, 1, 8, 8)
    >>> graph = trace(net, x)
    >>> residual_branches(graph, net, Absence(net, x, graph.operators))[0]
    Branch(end='blocks.0.bn2', layers=['blocks.0.bn1', 'blocks.0.bn2'], obstacle=None)
    """
    found = dict(_in_graph(graph, model))
    free = {index: gone for index, (branch, gone) in found.items() if branch.obstacle is None}
    objections = _objections(graph, model, absence, free)
    return [replace(branch, obstacle=objections.get(index, branch.obstacle)) for index, (branch, _) in found.items()]


def _objections(
    graph: ChannelGraph, model: nn.Module, absence: Absence, free: Mapping[int, Branches]
) -> dict[int, str | None]:
    """What the model's code has against the absence of each; of all at once first, since each question takes long."""
    together = branches_together(graph, free, model)
    if not together.ends or absence.objection(removed_layers(graph, together)) is not None:
        return _asked_singly(graph, absence, free)
    return _asked_singly(graph, absence, {index: gone for index, gone in free.items() if index not in together.ends})


def _asked_singly(graph: ChannelGraph, absence: Absence, free: Mapping[int, Branches]) -> dict[int, str | None]:
    answers: dict[int, str | None] = {}
    end = time.monotonic() + PATIENCE_SECONDS
    for index, gone in free.items():
        in_time = time.monotonic() < end
        answers[index] = absence.objection(removed_layers(graph, gone)) if in_time else NOT_ASKED
    return answers


def _in_graph(graph: ChannelGraph, model: nn.Module) -> Iterator[tuple[int, tuple[Branch, Branches]]]:
    order = list(graph.batch_norms)
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Affine) and node.weight is not None:
            gone, obstacle = branch_ending_at(graph, index, model)
            if gone.survivors and not _is_the_stem(graph, index, gone):
                layers = sorted(gone.layers(graph), key=order.index)
                yield index, (Branch(node.layer, layers, obstacle), gone)


def _is_the_stem(graph: ChannelGraph, end: int, branch: Branches) -> bool:
    """Whether it is what branches start from: what it is added to is made of it."""
    made = np.zeros(graph.count, bool)
    for index in range(end, len(graph.nodes)):
        node = graph.nodes[index]
        if index in branch.survivors and isinstance(node, Pointwise):
            return bool(made[node.labels_of(branch.survivors[index])].any())
        if index == end or any(made[labels].any() for labels in reads_of(node)):
            made[getattr(node, "writes", [])] = True
    return False
