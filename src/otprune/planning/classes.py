"""Labels that are one channel: everything that a pointwise operator, a pool or a shared parameter ties together."""

import numpy as np

from otprune.channels.graph import Carry, ChannelGraph, Labels, Meeting, Pointwise, connected
from otprune.planning.branches import Branches


def channel_classes(graph: ChannelGraph, branches: Branches) -> Labels:
    """For every label, the number of its channel. A branch that goes no longer ties what it read or was added to."""
    base = np.arange(graph.count)
    pairs = list(graph.ties)
    for index, node in enumerate(graph.nodes):
        if index in branches.nodes:
            continue
        if isinstance(node, Carry):
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
