"""What must stay beyond what is live: no empty layer, equal groups, equal pieces, round numbers."""

import numpy as np

from otprune.channels.graph import Affine, ChannelGraph, Flags, Labels, Mix, Node, Partition
from otprune.planning.weights import Array


def unmet(graph: ChannelGraph, gone: frozenset[int], live: Flags, scores: Array, round_to: int) -> Labels:
    """Labels to keep in addition, the most important first in each place where some are missing."""
    needed: list[Labels] = []
    for index, node in enumerate(graph.nodes):
        if index not in gone:
            needed += _unmet_by(node, live, scores, round_to)
    return np.concatenate([np.zeros(0, np.int64), *needed])


def _unmet_by(node: Node, live: Flags, scores: Array, round_to: int) -> list[Labels]:
    if isinstance(node, Mix) and node.groups > 1:
        return _equal_groups(node, live, scores)
    if isinstance(node, Mix):
        return [_topped_up(node.reads[0], 1, live, scores), _rounded_up(node.writes[0], live, scores, round_to)]
    if isinstance(node, Affine):
        return [_rounded_up(node.writes, live, scores, round_to)]
    if isinstance(node, Partition):
        return _equal_rows(node.pieces, live, scores)
    return []


def _equal_groups(node: Mix, live: Flags, scores: Array) -> list[Labels]:
    """A group goes as a whole, or keeps as many inputs and outputs as every other group that stays."""
    stays: Flags = np.logical_or(live[node.reads].any(axis=1), live[node.writes].any(axis=1))
    if not stays.any():
        stays[np.argmax(scores[node.writes].max(axis=1))] = True
    return _equal_rows(node.reads[stays], live, scores) + _equal_rows(node.writes[stays], live, scores)


def _equal_rows(rows: Labels, live: Flags, scores: Array) -> list[Labels]:
    counts = live[rows].sum(axis=1)
    goal = max(1, int(counts.max()))
    return [_topped_up(row, goal, live, scores) for row in rows[counts < goal]]


def _rounded_up(labels: Labels, live: Flags, scores: Array, round_to: int) -> Labels:
    count = max(1, int(live[labels].sum()))
    return _topped_up(labels, min(-(-count // round_to) * round_to, len(labels)), live, scores)


def _topped_up(labels: Labels, goal: int, live: Flags, scores: Array) -> Labels:
    """The best of the dead labels, as many as are missing to `goal`."""
    alive = live[labels]
    missing = goal - int(alive.sum())
    if missing <= 0:
        return labels[:0]
    dead = labels[~alive]
    return dead[np.argsort(-scores[dead], kind="stable")[:missing]]
