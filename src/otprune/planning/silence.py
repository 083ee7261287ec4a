"""Branches that are no operand of a sum: which of them let too little through to matter, and what falls silent then.

Such a branch ends in a batch norm, and perhaps further layers without one, before it is put beside others. That is how
a dense block is made, and one of parallel convolutions. It cannot be taken out as a whole, since what comes after it
counts its channels; but its last batch norm can fall silent, and with it those that only fed it, if they are as quiet.

A batch norm that reads quiet channels divides each by its own deviation and may make it loud again. So what is quiet is
followed to where it is added up with what is not, past batch norms whose scaling factors are as small there.
"""

from collections.abc import Collection, Mapping

import numpy as np

from otprune.channels.graph import Affine, Carry, ChannelGraph, Flags, Labels, Meeting, Mix, Node, Pointwise, reads_of
from otprune.planning.branches import SUMS, Branches, upstream
from otprune.planning.passage import outputs_reached
from otprune.planning.weights import Weights


def silent_layers(
    graph: ChannelGraph,
    faint: Mapping[str, Flags],
    quiet: Collection[str],
    dead: Collection[str],
    branches: Branches,
    weights: Weights,
) -> set[str]:
    """Those of the `quiet` batch norms that fall silent; all that reached an output must still reach it.

    Quiet ones have nothing but `faint` scaling factors, and dead ones none but zeros.
    """
    gone = branches.layers(graph)
    ends = unheard(graph, faint, [name for name in quiet if name not in gone and name not in dead])
    before, after = (outputs_reached(graph, stopped, branches, weights) for stopped in (dead, [*dead, *ends]))
    silent = ends if before == after else []
    return set(silent) | (_only_feeding(graph, [*silent, *dead]) & set(quiet))


def unheard(graph: ChannelGraph, faint: Mapping[str, Flags], layers: Collection[str]) -> list[str]:
    """Those of the layers that nothing makes loud again, even if all of them are quiet at once."""
    runs = [node.layer for node in graph.of(Affine)]
    left = [name for name in layers if runs.count(name) == 1]
    while loud := _made_loud(graph, faint, left):
        left = [name for number, name in enumerate(left) if not loud[number]]
    return left


def _made_loud(graph: ChannelGraph, faint: Mapping[str, Flags], layers: list[str]) -> list[bool]:
    """For each of the layers, whether something hears what it writes; nothing where that is so of none."""
    came_from = np.zeros((len(layers), graph.count), bool)
    loud = np.zeros(len(layers), bool)
    for node in graph.nodes:
        if any(came_from[:, labels].any() for labels in reads_of(node)):
            loud |= _heard_by(node, faint, came_from)
            _pass_on(node, came_from)
        if isinstance(node, Affine) and node.layer in layers:
            came_from[layers.index(node.layer), node.writes] = True
    return loud.tolist() if loud.any() else []


def _heard_by(node: Node, faint: Mapping[str, Flags], came_from: Flags) -> Flags:
    """For each layer, whether the node takes what comes from it for more than something small beside the rest."""
    heard = reads_of(node)
    if isinstance(node, Affine):
        heard = [node.reads[~faint[node.layer]]] if node.layer in faint else heard
    elif isinstance(node, Mix | Carry | Meeting) or (isinstance(node, Pointwise) and _adds_at_most(node)):
        heard = []
    found: Flags = np.zeros(len(came_from), bool)
    for labels in heard:
        found |= came_from[:, labels.reshape(-1)].any(axis=1)
    return found


def _adds_at_most(node: Pointwise) -> bool:
    return len(node.labelled) == 1 or node.func in SUMS


def _pass_on(node: Node, came_from: Flags) -> None:
    """What a node makes of quiet channels alone is as quiet, and comes from where they do."""
    reads, writes = _rows(node)
    quiet: Flags = np.logical_or.reduce(came_from[:, reads], axis=0).all(axis=1)
    sources: Flags = np.logical_or.reduce(came_from[:, reads[quiet]], axis=2)
    came_from[:, writes[quiet]] |= sources[:, :, None]


def _rows(node: Node) -> tuple[Labels, Labels]:
    """Labels read together and what is made of them, a row each."""
    if isinstance(node, Mix):
        return node.reads, node.writes
    if isinstance(node, Pointwise):
        return np.stack(node.labelled, axis=1), node.writes[:, None]
    if isinstance(node, Affine | Carry):
        return node.reads[:, None], node.writes[:, None]
    if isinstance(node, Meeting):
        return node.reads, node.writes[:, None]
    return np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64)


def _only_feeding(graph: ChannelGraph, layers: Collection[str]) -> set[str]:
    """The batch norms that feed nothing but these, in all their runs."""
    norms = {index: node.layer for index, node in enumerate(graph.nodes) if isinstance(node, Affine)}
    fed = upstream(graph, frozenset(index for index, name in norms.items() if name in layers), {})
    return {norms[index] for index in fed & norms.keys()} - {name for index, name in norms.items() if index not in fed}
