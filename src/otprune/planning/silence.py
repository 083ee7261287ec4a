"""Branches that are no operand of a sum: which of them let too little through to matter, and what falls silent then.

Such a branch ends in a batch norm, and perhaps further layers without one, before it is put beside others. That is how
a dense block is made, and one of parallel convolutions. It cannot be taken out as a whole, since what comes after it
counts its channels; but its last batch norm can fall silent, and with it those that only fed it, if they are as quiet.
"""

from collections.abc import Collection

import numpy as np

from otprune.channels.graph import (
    Affine,
    Carry,
    ChannelGraph,
    Flags,
    Frozen,
    Meeting,
    Mix,
    Node,
    Pointwise,
    reads_of,
)
from otprune.planning.branches import SUMS, Branches, upstream
from otprune.planning.passage import is_passable
from otprune.planning.weights import Weights


def silent_layers(
    graph: ChannelGraph, quiet: Collection[str], dead: Collection[str], branches: Branches, weights: Weights
) -> set[str]:
    """Those of the `quiet` batch norms that fall silent: as many as leave a way past them all.

    Quiet ones are not heard in the network as a whole, but another batch norm may make them louder. Dead ones let
    nothing through anyway.
    """
    gone = branches.layers(graph)
    ends = [name for name in quiet if name not in gone and name not in dead and ends_a_branch(graph, name)]
    silent: list[str] = []
    if is_passable(graph, [*dead, *ends], branches, weights):
        silent = ends
    else:
        for name in ends:
            if is_passable(graph, [*dead, *silent, name], branches, weights):
                silent.append(name)
    return _with_what_feeds_them(graph, silent) & set(quiet)


def ends_a_branch(graph: ChannelGraph, layer: str) -> bool:
    """Whether what a batch norm writes is put beside something else, or added to it, before another one reads it.

    So it is where nothing reads it.
    """
    runs = [index for index, node in enumerate(graph.nodes) if isinstance(node, Affine) and node.layer == layer]
    if len(runs) != 1:
        return False
    own = np.zeros(graph.count, bool)
    own[graph.batch_norms[layer].writes] = True
    for node in graph.nodes[runs[0] + 1 :]:
        read = [own[labels] for labels in reads_of(node)]
        if not any(part.any() for part in read):
            continue
        if all(part.all() for part in read) and isinstance(node, Mix | Pointwise | Carry | Meeting):
            own[node.writes] = True
        elif not _merges(node, read):
            return False
    return True


def _merges(node: Node, read: list[Flags]) -> bool:
    """Whether a node that reads the branch reads something else with it, which is left when the branch is silent."""
    if isinstance(node, Frozen) or all(part.all() for part in read):
        return False
    return not isinstance(node, Pointwise) or len(read) == 1 or node.func in SUMS


def _with_what_feeds_them(graph: ChannelGraph, layers: Collection[str]) -> set[str]:
    ends = frozenset(i for i, node in enumerate(graph.nodes) if isinstance(node, Affine) and node.layer in layers)
    nodes = (graph.nodes[index] for index in upstream(graph, ends, {}))
    return {node.layer for node in nodes if isinstance(node, Affine)}
