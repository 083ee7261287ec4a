"""A solution as plain data: which indices of which tensors stay, which layers select, go, or take constants."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import nn

from otprune.channels.graph import (
    ANY_SIZE,
    Affine,
    Attached,
    ChannelGraph,
    Counted,
    Flags,
    Mix,
    Overwriting,
    Pointwise,
    Shaped,
    Zeros,
    reads_of,
)
from otprune.planning.constants import summed_kernel
from otprune.planning.solve import Solution

ZEROS = -1  # in place of the position of a channel that is gone, of which a batch norm still makes a constant


@dataclass(frozen=True)
class Cut:
    """What stays of a tensor: for each of its cut axes, the indices along it.

    The weight of a grouped convolution says in `groups` how many groups it has afterwards. Its axis 0 is cut like any
    other; the indices of axis 1 are as many for each group, one group after the other.
    """

    tensor: str
    shape: tuple[int, ...]
    keep: dict[int, list[int]]
    groups: int | None = None


@dataclass(frozen=True)
class Fold:
    """A constant that a layer no longer reads, added to a tensor along the channels it writes."""

    tensor: str
    amounts: list[float]


@dataclass(frozen=True)
class Piece:
    """The shape of a piece that a line of the model is to cut channels into."""

    line: str
    shape: list[int]


@dataclass(frozen=True)
class Memorized:
    """A number of channels that a module remembers: in an attribute, or an item of a list that is one."""

    module: str
    attribute: str
    item: int | None
    count: int

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}".lstrip(".")


def cuts(graph: ChannelGraph, solution: Solution) -> list[Cut]:
    """Every tensor that shrinks, once each."""
    found: dict[str, Cut] = {}
    for index, node in enumerate(graph.nodes):
        if index in solution.branches.nodes:
            continue
        for cut in _cuts_of(node, graph, solution.live):
            earlier = found.setdefault(cut.tensor, cut)
            earlier.keep.update(cut.keep)
    return list(found.values())


def selections(graph: ChannelGraph, solution: Solution) -> dict[str, list[int]]:
    """For each batch norm that reads other channels than arrive, their positions among those, or `ZEROS`."""
    found = {}
    put_in = np.concatenate([np.zeros(0, np.int64), *(node.writes for node in graph.of(Zeros))])
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Affine) and index not in solution.branches.nodes:
            arriving = solution.live[node.incoming] & ~np.isin(node.incoming, put_in)
            position = np.where(arriving, np.cumsum(arriving) - 1, ZEROS)
            picks = position[node.picks[solution.live[node.writes]]]
            if not np.array_equal(picks, np.arange(arriving.sum())):
                found[node.layer] = picks.tolist()
    return found


def pieces(graph: ChannelGraph, solution: Solution) -> list[Piece]:
    """What the views and splits that cut channels must come to, in the order they run.

    Where every size depends on the data, how often a line runs may, too, and there is nothing to know a piece by.
    """
    found = (Piece(node.location, _shape_left(node, solution.live)) for node in graph.of(Shaped))
    return [piece for piece in found if any(size != ANY_SIZE for size in piece.shape)]


def memories(graph: ChannelGraph, solution: Solution) -> list[Memorized]:
    """What modules are to remember instead of the numbers of channels they had."""
    left = ((node, int(solution.live[node.labels].sum())) for node in graph.of(Counted))
    return [Memorized(n.module, n.attribute, n.item, count) for n, count in left if count < len(n.labels)]


def _shape_left(node: Shaped, live: Flags) -> list[int]:
    stays = live[node.labels]
    lanes = (np.moveaxis(stays, dim, 0).reshape(stays.shape[dim], -1).any(axis=1) for dim in range(stays.ndim))
    fixed = ((lane.size == 1 or size == ANY_SIZE, lane, size) for lane, size in zip(lanes, node.shape, strict=True))
    return [size if stays_so else int(lane.sum()) for stays_so, lane, size in fixed]


def not_in_place(model: nn.Module, solution: Solution) -> list[str]:
    """The modules that must stop writing in place, since a sum before them now hands on its operand itself."""
    return [name for name, module in model.named_modules() if module in solution.branches.in_place]


def still_read(graph: ChannelGraph, model: nn.Module, solution: Solution) -> list[str]:
    """Those of them whose every result the rest of the model reads."""
    read = np.zeros(graph.count, bool)
    for index, node in enumerate(graph.nodes):
        survivor = solution.branches.survivors.get(index)
        if survivor is not None and isinstance(node, Pointwise):
            read[node.labels_of(survivor)] = True
        elif index not in solution.branches.nodes:
            for labels in reads_of(node):
                read[labels] = True
    unread = {node.writer for node in graph.of(Overwriting) if not read[node.results].any()}
    return [name for name in not_in_place(model, solution) if model.get_submodule(name) not in unread]


def folds(graph: ChannelGraph, solution: Solution) -> list[Fold]:
    """What each layer loses by not reading constants other than zero."""
    found = []
    for index, absorber in solution.absorbers.items():
        node = graph.nodes[index]
        assert isinstance(node, Mix)
        read = np.where(solution.live[node.reads], 0.0, solution.values[node.reads])
        read = np.where(np.isnan(read), 0.0, read)
        if index not in solution.branches.nodes and read.any():
            amounts = absorber.sign * np.einsum("goi,gi->go", summed_kernel(node, solution.weights), read)
            amounts = np.where(solution.live[node.writes], amounts, 0.0)  # a batch norm may read zeros there
            found.append(Fold(absorber.name, amounts.reshape(-1).tolist()))
    return found


def _cuts_of(node: object, graph: ChannelGraph, live: Flags) -> Iterator[Cut]:
    if isinstance(node, Mix):
        if not (live[node.writes].all() and live[node.reads].all()):
            yield _weight_cut(node, graph, live)
        if node.bias is not None:
            yield from _vector_cut(node.bias, 0, graph, live[node.writes.reshape(-1)])
    elif isinstance(node, Affine):
        for tensor in node.tensors:
            yield from _vector_cut(tensor, 0, graph, live[node.writes])
    elif isinstance(node, Attached) and live[node.labels].any():
        yield from _vector_cut(node.name, node.axis, graph, live[node.labels])


def _vector_cut(tensor: str, axis: int, graph: ChannelGraph, stays: Flags) -> Iterator[Cut]:
    if not stays.all():
        yield Cut(tensor, graph.shapes[tensor], {axis: np.flatnonzero(stays).tolist()})


def _weight_cut(node: Mix, graph: ChannelGraph, live: Flags) -> Cut:
    rows, columns = (node.reads, node.writes) if node.transposed else (node.writes, node.reads)
    stays = live[rows].any(axis=1)
    keep = {0: np.flatnonzero(live[rows]).tolist(), 1: np.nonzero(live[columns[stays]])[1].tolist()}
    return Cut(node.weight, graph.shapes[node.weight], keep, int(stays.sum()) if node.groups > 1 else None)
