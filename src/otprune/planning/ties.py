"""Which batch norms write channels that are one and the same, since a sum ties them."""

from collections.abc import Iterator

import numpy as np

from otprune.channels.graph import Carry, ChannelGraph, Labels, Meeting, Pointwise, connected
from otprune.channels.labels import NO_CHANNEL


def tied_batch_norms(graph: ChannelGraph) -> list[list[str]]:
    """Groups of two and more batch norms, all in the order they run.

    >>> import torch
    >>> from otprune.channels.trace import trace
    >>> from otprune.models import digits_net
    >>> tied_batch_norms(trace(digits_net(), torch.zeros(1, 1, 8, 8)))[0]
    ['bn', 'blocks.0.bn2', 'blocks.1.bn2']
    """
    classes = channels_by_number(graph)
    norms = graph.batch_norms
    rows = [classes[node.writes] for node in norms.values()]
    joined = connected(graph.count, [(np.full(len(row), row[0]), row) for row in rows])
    groups: dict[int, list[str]] = {}
    for name, row in zip(norms, rows, strict=True):
        groups.setdefault(int(joined[row[0]]), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def channels_by_number(graph: ChannelGraph) -> Labels:
    """For every label the number of its channel. Unlike to the planner, "no channel" that two meet does not tie them.

    >>> import torch
    >>> from otprune.channels.trace import trace
    >>> from otprune.models import digits_net
    >>> graph = trace(digits_net(), torch.zeros(1, 1, 8, 8))
    >>> numbers = channels_by_number(graph)
    >>> bool((numbers[graph.batch_norms["bn"].writes] == numbers[graph.batch_norms["blocks.0.bn2"].writes]).all())
    True
    """
    pairs = [*graph.ties, *_handed_on(graph)]
    met = [(left != NO_CHANNEL) & (right != NO_CHANNEL) for left, right in pairs]
    return connected(graph.count, [(a[both], b[both]) for (a, b), both in zip(pairs, met, strict=True)])


def _handed_on(graph: ChannelGraph) -> Iterator[tuple[Labels, Labels]]:
    for node in graph.nodes:
        if isinstance(node, Carry):
            yield node.writes, node.reads
        elif isinstance(node, Meeting):
            yield node.writes, node.reads[:, 0]
        elif isinstance(node, Pointwise):
            yield from ((node.writes, labels) for labels in node.labelled)
