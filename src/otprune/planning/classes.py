"""Labels that are one channel: everything that a pointwise operator, a pool or a shared parameter ties together."""

import numpy as np

from otprune.channels.graph import (
    Affine,
    Carry,
    ChannelGraph,
    Flags,
    Labels,
    Meeting,
    Mix,
    Node,
    Pointwise,
    connected,
    reads_of,
)
from otprune.planning.branches import Branches


def channel_classes(graph: ChannelGraph, branches: Branches) -> Labels:
    """For every label, the number of its channel. A branch that goes no longer ties what it read or was added to."""
    base = np.arange(graph.count)
    absent = np.zeros(graph.count, bool)
    pairs = list(graph.ties)
    for index, node in enumerate(graph.nodes):
        if index in branches.nodes and _does_not_run(node, absent):
            absent[node.writes] = True  # type: ignore[union-attr]
        elif isinstance(node, Carry):
            base[node.writes] = base[node.reads]
        elif isinstance(node, Meeting):
            base[node.writes] = base[node.reads[:, 0]]
        elif isinstance(node, Pointwise):
            survivor = branches.survivors.get(index)
            first, *others = node.labelled if survivor is None else [node.labels_of(survivor)]
            base[node.writes] = base[first]
            pairs += [(first, other) for other in others]
    root = connected(graph.count, [(base[left], base[right]) for left, right in pairs])
    return root[base]


def _does_not_run(node: Node, absent: Flags) -> bool:
    """Whether a node of a branch that goes is not run any more: a layer that was taken out, or what only gets nothing.

    An operator whose operands are all still there runs as before, though nothing reads its result.
    """
    if isinstance(node, Mix | Affine):
        return True
    return bool(node.writes.size) and any(absent[labels].any() for labels in reads_of(node))  # type: ignore[union-attr]
