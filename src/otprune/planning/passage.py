"""Whether anything of the model's input still reaches its output when some batch norms let nothing through."""

from collections.abc import Collection

import numpy as np

from otprune.channels.graph import Affine, Carry, ChannelGraph, Flags, Frozen, Meeting, Mix, Pointwise


def is_passable(graph: ChannelGraph, stopped: Collection[str], gone: Collection[int]) -> bool:
    """Whether a way leads from input to output past the `stopped` batch norms; nodes that are `gone` lead nowhere.

    What no node is known to write counts as input, so that an answer of no is certain.
    """
    reached = _written_by_none(graph)
    for index, node in enumerate(graph.nodes):
        if index in gone or (isinstance(node, Affine) and node.layer in stopped):
            continue
        if isinstance(node, Mix | Affine | Pointwise | Carry | Meeting):
            reached[node.writes[_reaching(node, reached)]] = True
    return any(reached[node.labels].any() for node in graph.of(Frozen) if node.expected)


def _written_by_none(graph: ChannelGraph) -> Flags:
    unwritten = np.ones(graph.count, bool)
    for node in graph.of(Mix, Affine, Pointwise, Carry, Meeting):
        unwritten[node.writes] = False
    return unwritten


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
