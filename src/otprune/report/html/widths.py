"""A network as the page computes with it: which channels are one, who has a say in them, and what each costs.

From the γ and this, costs at any δ follow by a few sums: no plan has to be made. A channel goes

- when every batch norm that writes it finds it negligible or has nothing to read there, and nothing else writes it, or
- when whatever reads it is a batch norm that hands on a channel which goes;

a branch goes when all γ of its last batch norm lie under the threshold of the whole network. For chains of layers,
residual networks before or after activation and dense ones that is all there is to planning. It is not where layers
are depthwise, chunked, gated and the like. So `otprune.report.html.costs` plans at a few δ, and where one answer
differs the page gets a table of plans instead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from otprune.channels.graph import Affine, ChannelGraph, Flags, Frozen, Labels, Mix, Sum, Zeros
from otprune.cost import Cost, LayerCost
from otprune.planning.branches import Branches, branch_ending_at, removed_layers
from otprune.planning.classes import channel_classes
from otprune.planning.liveness import always_live

Axis = list[tuple[int, int]]  # runs of channels: the first, and how many
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Norm:
    """A batch norm: the channels it reads and writes, and the layer that it is."""

    layer: str
    reads: Axis
    writes: Axis


@dataclass(frozen=True)
class Term:
    """A part of the cost: so many parameters and FLOPs for every combination of channels along its axes.

    Where there are two axes, the layer reads the channels of the first and writes those of the second.
    """

    layer: str
    axes: list[Axis]
    parameters: int
    flops: int


@dataclass(frozen=True)
class Branch:
    """A residual branch: its last batch norm, the layers that go with it, and the channels that are only its own.

    Of those that are added by one sum only the first can go: `sum` is its number.
    """

    end: str
    sum: int
    layers: list[str]
    channels: Axis


@dataclass(frozen=True)
class Widths:
    """All that costs follow from, besides γ.

    Channels that are `written` by more than batch norms can never be nothing; those that are `read` by something
    without a weight are always wanted; `fixed` ones stay for a reason of their own.
    """

    channels: int
    norms: list[Norm]
    terms: list[Term]
    branches: list[Branch]
    written: Axis
    read: Axis
    fixed: Axis


def widths(model: nn.Module, graph: ChannelGraph, cost: Cost) -> Widths:
    """The network of a trace, with what its layers cost unpruned.

    >>> import torch, otprune as ot
    >>> from otprune.channels.trace import trace
    >>> net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)), torch.zeros(1, 3, 8, 8)
    >>> [(term.layer, term.flops) for term in widths(net, trace(net, x), ot.cost(net, x)).terms][2:4]
    [('1', 144), ('2', 36)]
    """
    numbers = _numbered(graph)
    runs = _Runs(numbers)
    norms = [Norm(layer, runs.of(node.reads), runs.of(node.writes)) for layer, node in graph.batch_norms.items()]
    return Widths(
        channels=int(numbers.max(initial=0)) + 1,
        norms=norms,
        terms=list(_terms(graph, cost, runs)),
        branches=list(_branches(graph, model, runs)),
        written=runs.each(_written_otherwise(graph)),
        read=runs.each(_read_otherwise(graph)),
        fixed=runs.each([np.flatnonzero(_fixed(graph))]),
    )


def costs_of(network: Widths, negligible: Mapping[str, Flags], below: Iterable[str]) -> tuple[int, int, list[int]]:
    """FLOPs, parameters, and the channels that each batch norm keeps; `below` names those that branches may end in.

    The page's own program does the same: this one is what it is checked by before anybody sees it.

    >>> import torch, otprune as ot
    >>> from otprune.channels.trace import trace
    >>> net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)), torch.zeros(1, 3, 8, 8)
    >>> costs_of(widths(net, trace(net, x), ot.cost(net, x)), {"1": np.array([True, False, False, True])}, below=[])
    (2520, 66, [2])
    """
    gone = _first_of_each_sum([branch for branch in network.branches if branch.end in set(below)])
    removed = {layer for branch in gone for layer in branch.layers}
    flags = {**negligible, **{branch.end: np.ones_like(negligible[branch.end]) for branch in gone}}
    left = [term for term in network.terms if term.layer not in removed]
    live = _live(network, flags, gone, left)
    sizes = [int(np.prod([_sum(live, axis) for axis in term.axes], dtype=np.int64)) for term in left]
    flops = sum(term.flops * size for term, size in zip(left, sizes, strict=True))
    parameters = sum(term.parameters * size for term, size in zip(left, sizes, strict=True))
    return flops, parameters, [0 if n.layer in removed else _sum(live, n.writes) for n in network.norms]


def _first_of_each_sum(branches: Sequence[Branch]) -> list[Branch]:
    return list({branch.sum: branch for branch in reversed(branches)}.values())


def _live(network: Widths, negligible: Mapping[str, Flags], gone: Sequence[Branch], left: Sequence[Term]) -> Flags:
    read = [term.axes[0] for term in left if len(term.axes) == 2]
    written, wanted = _flags(network, network.written), _flags(network, list(chain(network.read, *read)))
    fixed, absent = _flags(network, network.fixed), np.zeros(network.channels, bool)
    for norm in network.norms:
        something = written[_indices(norm.reads)]
        written[_indices(norm.writes)[~negligible[norm.layer] & something]] = True
    for branch in gone:
        absent[_indices(branch.channels)] = True
    for norm in reversed(network.norms):
        handed_on = _indices(norm.writes)
        live = fixed | (written & wanted & ~absent)
        wanted[_indices(norm.reads)[live[handed_on]]] = True
    return fixed | (written & wanted & ~absent)


def _flags(network: Widths, axis: Axis) -> Flags:
    flags = np.zeros(network.channels, bool)
    flags[_indices(axis)] = True
    return flags


def _indices(axis: Axis) -> Labels:
    return np.concatenate([np.arange(first, first + count) for first, count in axis] or [np.zeros(0, np.int64)])


def _sum(live: Flags, axis: Axis) -> int:
    return sum(int(live[first : first + count].sum()) for first, count in axis)


class _Runs:
    """Labels as runs of channels."""

    def __init__(self, numbers: Counts) -> None:
        self._numbers = numbers

    def of(self, labels: Labels) -> Axis:
        """In their order: a channel may come more than once."""
        return _runs(self._numbers[labels.reshape(-1)])

    def repeated(self, labels: Labels) -> tuple[Axis, int]:
        """Where each comes so many times in a row, as after flattening an image: the same once, and how many times."""
        numbers = self._numbers[labels.reshape(-1)]
        lengths = np.diff(np.flatnonzero(np.diff(numbers, prepend=-1, append=-1)))
        times = int(np.gcd.reduce(lengths))
        return self.of(labels.reshape(-1)[::times]), times

    def each(self, labels: Iterable[Labels]) -> Axis:
        """Sorted, every channel once."""
        found = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.reshape(-1) for one in labels)]))
        return _runs(np.unique(self._numbers[found]))


def _runs(numbers: Counts) -> Axis:
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    return [(int(part[0]), len(part)) for part in np.split(numbers, starts[1:]) if len(part)]


def _numbered(graph: ChannelGraph) -> Counts:
    """For every label the number of its channel, counted in the order of execution, so that runs are long."""
    classes = channel_classes(graph, Branches())
    ordered = np.concatenate([node.writes.reshape(-1) for node in graph.of(Mix, Affine)])
    first = np.unique(classes[ordered], return_index=True)[1]
    places = np.full(graph.count, -1, np.int64)
    seen = classes[ordered[np.sort(first)]]
    rest = np.setdiff1d(np.unique(classes), seen)
    places[np.concatenate([seen, rest])] = np.arange(len(seen) + len(rest))
    return places[classes]


def _written_otherwise(graph: ChannelGraph) -> Iterator[Labels]:
    yield np.zeros(1, np.int64)  # "no channel" and inputs
    for node in graph.nodes:
        if isinstance(node, Mix | Zeros) or (isinstance(node, Affine) and node.weight is None):
            yield node.writes


def _read_otherwise(graph: ChannelGraph) -> Iterator[Labels]:
    for node in graph.nodes:
        if isinstance(node, Sum) or (isinstance(node, Affine) and node.weight is None):
            yield node.reads
        elif isinstance(node, Frozen):
            yield node.labels


def _fixed(graph: ChannelGraph) -> Flags:
    classes = channel_classes(graph, Branches())
    return always_live(graph, classes)[classes]


def _branches(graph: ChannelGraph, model: nn.Module, runs: _Runs) -> Iterator[Branch]:
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Affine) and node.weight is not None:
            gone, obstacle = branch_ending_at(graph, index, model)
            if gone.survivors and obstacle is None:
                yield Branch(node.layer, min(gone.survivors), removed_layers(graph, gone), runs.each(_own(graph, gone)))


def _own(graph: ChannelGraph, branch: Branches) -> Iterator[Labels]:
    """What the layers of a branch write, all but the last."""
    for index in branch.nodes - branch.ends:
        if isinstance(node := graph.nodes[index], Mix | Affine):
            yield node.writes


def _terms(graph: ChannelGraph, cost: Cost, runs: _Runs) -> Iterator[Term]:
    nodes = {_layer_of(node): node for node in graph.of(Mix, Affine)}
    last: Mix | Affine | None = None
    for layer in cost.layers:
        node = nodes.get(layer.name)
        if isinstance(node, Mix):
            yield from _mixing(layer, node, graph, runs)
        elif isinstance(node, Affine):
            count = len(node.writes)
            yield Term(layer.name, [runs.of(node.writes)], layer.parameters // count, layer.flops // count)
        else:
            yield _without_channels(layer, last, runs)
        last = node or last


def _mixing(layer: LayerCost, node: Mix, graph: ChannelGraph, runs: _Runs) -> Iterator[Term]:
    """A part for each pair of channels, and one for each that is written: the bias, and one sum less where it is so."""
    (reads, times), writes = runs.repeated(node.reads), runs.of(node.writes)
    weights = int(np.prod(graph.shapes[node.weight]))
    pairs, written = node.reads.size * node.writes.size, node.writes.size
    each = layer.flops if len(graph.shapes[node.weight]) > 2 else 2 * layer.macs
    per_pair = layer.macs // pairs * (each // layer.macs if layer.macs else 0)
    yield Term(layer.name, [reads, writes], weights // pairs * times, per_pair * times)
    rest = layer.flops - per_pair * pairs
    yield Term(layer.name, [writes], (layer.parameters - weights) // written, rest // written)


def _without_channels(layer: LayerCost, before: Mix | Affine | None, runs: _Runs) -> Term:
    """A pool, most likely of what the layer before it writes."""
    if before is None or layer.parameters:
        return Term(layer.name, [], layer.parameters, layer.flops)
    return Term(layer.name, [runs.of(before.writes)], 0, layer.flops // before.writes.size)


def _layer_of(node: Any) -> str:
    name = node.weight if isinstance(node, Mix) else node.layer + "."
    return str(name).rpartition(".")[0]
