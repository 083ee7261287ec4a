"""Where a constant that a layer no longer reads can be put: its bias, or the running mean right after it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from otprune.channels.graph import Affine, Attached, ChannelGraph, Frozen, Labels, Mix, Node, reads_of
from otprune.planning.branches import tensors_of


@dataclass(frozen=True)
class Absorber:
    """A tensor along the channels that a layer writes, and the sign with which a constant enters it."""

    name: str
    sign: int


def absorbers(graph: ChannelGraph, *, at_borders: bool = False) -> dict[int, Absorber]:
    """For each layer (by its node's index) that can lose a constant, what takes it.

    Where the layer pads with zeros a constant is not constant near the border, so it is left out; `at_borders` takes
    it in all the same, for a repair that may be approximate there.
    """
    uses = uses_of(graph)
    followers = _sole_followers(graph, uses)
    found = {}
    for index, node in enumerate(graph.nodes):
        if not isinstance(node, Mix) or uses[node.weight] > 1 or (node.bias is not None and uses[node.bias] > 1):
            continue
        if (node.padded or node.transposed) and not at_borders:
            continue
        if node.bias is not None:
            found[index] = Absorber(node.bias, 1)
        elif (follower := followers.get(node.writes.tobytes())) is not None:
            found[index] = Absorber(follower, -1)
    return found


def uses_of(graph: ChannelGraph) -> Counter[str]:
    """How many nodes read each parameter and buffer."""
    return Counter(name for node in graph.nodes for name in _tensors_used(node))


def readers_of(nodes: Iterable[Node], count: int) -> Labels:
    """How many of the nodes read each of `count` labels."""
    readers = np.zeros(count, np.int64)
    for node in nodes:
        for labels in reads_of(node):
            np.add.at(readers, labels, 1)
    return readers


def _sole_followers(graph: ChannelGraph, uses: Counter[str]) -> dict[bytes, str]:
    """The running means of batch norms that are the only reader of what they read, by those labels."""
    readers = readers_of(graph.nodes, graph.count)
    return {
        node.reads.tobytes(): node.mean
        for node in graph.of(Affine)
        if node.mean is not None and uses[node.mean] == 1 and (readers[node.reads] == 1).all()
    }


def _tensors_used(node: Node) -> list[str]:
    """The parameters and buffers that a node reads, for whatever it needs them."""
    if isinstance(node, Attached):
        return [node.name]
    if isinstance(node, Frozen):
        return [] if node.parameter is None else [node.parameter]
    return tensors_of(node)
