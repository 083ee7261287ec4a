"""Whether anything of the model's input still reaches its output when some batch norms let nothing through."""

from collections.abc import Collection

import numpy as np

from otprune.channels.graph import Affine, Carry, ChannelGraph, Flags, Frozen, Meeting, Mix, Pointwise
from otprune.planning.branches import Branches
from otprune.planning.constants import constants
from otprune.planning.weights import Weights


def is_passable(graph: ChannelGraph, stopped: Collection[str], branches: Branches, weights: Weights) -> bool:
    """Whether a way leads from input to output when all that the `stopped` batch norms write is zero."""
    return any(outputs_reached(graph, stopped, branches, weights))


def outputs_reached(graph: ChannelGraph, stopped: Collection[str], branches: Branches, weights: Weights) -> list[bool]:
    """The same of each output.

    What comes from nowhere known, or goes where nothing is known, counts as input: the doubt is the model's.
    """
    reached = _from_elsewhere(graph)
    zeros = {name: np.where(reached[graph.batch_norms[name].writes], np.nan, 0.0) for name in stopped}
    varies = np.isnan(constants(graph, zeros, branches, weights.afresh()))
    for index, node in enumerate(graph.nodes):
        if index not in branches.nodes and isinstance(node, Mix | Affine | Pointwise | Carry | Meeting):
            found = node.writes[_reaching(node, reached)]
            reached[found[varies[found]]] = True
    return [bool(reached[node.labels].any()) for node in graph.of(Frozen) if node.expected]


def _from_elsewhere(graph: ChannelGraph) -> Flags:
    """What no node writes, and what is looked at, or written over, in ways that are not followed."""
    found = np.ones(graph.count, bool)
    for node in graph.of(Mix, Affine, Pointwise, Carry, Meeting):
        found[node.writes] = False
    for node in graph.of(Frozen):
        found[node.labels] |= not node.expected
    return found


def _reaching(node: Mix | Affine | Pointwise | Carry | Meeting, reached: Flags) -> Flags:
    """For each row of what the node writes, whether something of the input comes in."""
    if isinstance(node, Pointwise):
        return _reaching_through_operands(node, reached)
    found: Flags = reached[node.reads]
    return np.logical_or.reduce(found, axis=1) if isinstance(node, Mix | Meeting) else found


def _reaching_through_operands(node: Pointwise, reached: Flags) -> Flags:
    found = np.zeros(node.writes.shape, bool)
    for labels, parameter in zip(node.operands, node.parameters, strict=True):
        if labels is not None:
            found |= reached[labels]
        elif parameter is None:  # it has no channels, and may be made of the input for all that is known
            found[:] = True
    return found
