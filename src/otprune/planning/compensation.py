"""What makes up for constants that went with channels and with whole branches, put where it can be taken in."""

from collections.abc import Collection, Mapping

import numpy as np

from otprune.channels.graph import Affine, Carry, ChannelGraph, Flags, Labels, Meeting, Mix, Node, Pointwise, reads_of
from otprune.planning.branches import SUMS, tensors_of
from otprune.planning.constants import summed_kernel
from otprune.planning.cuts import Cut
from otprune.planning.folding import absorbers, readers_of, uses_of
from otprune.planning.weights import Array, Weights


def compensation(
    graph: ChannelGraph, values: Array, weights: Weights, removed: Collection[str], cuts: Mapping[str, Cut]
) -> dict[str, Array]:
    """What is to be added to which tensors, so that a pruned model loses no constant.

    Args:
        graph: the channels of the original.
        values: the constants that the original's labels carry.
        weights: the original's.
        removed: layers that went with whole branches.
        cuts: what is left of each tensor that was cut.
    """
    return _Shortfall(graph, values, weights, removed, cuts).amounts


class _Shortfall:
    """Follows what the values of a pruned model are short of, from operator to operator.

    A layer that no longer reads some constants, and a sum that lost a branch of them, is short by a constant in every
    channel. A sum passes that on, and so do pools and convolutions; a bias or a running mean takes it in, and
    `amounts` has what is to be added to each. An activation ends it. A channel that is gone is short of all it was:
    a batch norm may read zeros in its place.
    """

    def __init__(
        self, graph: ChannelGraph, values: Array, weights: Weights, removed: Collection[str], cuts: Mapping[str, Cut]
    ) -> None:
        self.amounts: dict[str, Array] = {}
        self._values, self._weights, self._cuts = values, weights, cuts
        self._short = np.zeros(graph.count)
        self._absent, self._gone = np.zeros(graph.count, bool), np.zeros(graph.count, bool)
        self._uses, self._absorbers = uses_of(graph), absorbers(graph, at_borders=True)
        left = [(index, node) for index, node in enumerate(graph.nodes) if not _is_of(node, removed)]
        self._readers = readers_of([node for _, node in left], graph.count)
        self._homes = {node.writes.tobytes(): node.bias for _, node in left if isinstance(node, Affine | Mix)}
        for node in graph.nodes:
            if _is_of(node, removed):
                self._absent[node.writes] = True  # type: ignore[union-attr]
        for index, node in left:
            self._pass(index, node)
            if isinstance(node, Affine | Pointwise | Carry | Meeting):
                self._note_gone(node)  # a layer's own is noted with what it is short of

    def _pass(self, index: int, node: Node) -> None:
        if isinstance(node, Mix):
            self._mix(index, node)
        elif isinstance(node, Affine):
            self._affine(node)
        elif isinstance(node, Pointwise):
            self._pointwise(node)
        elif isinstance(node, Carry):
            self._absent[node.writes] = self._absent[node.reads]
            self._short[node.writes] = self._short[node.reads] if node.keeps == "constants" else 0
        elif isinstance(node, Meeting):
            read = self._short[node.reads]
            self._short[node.writes] = np.where((read == read[:, :1]).all(axis=1), read[:, 0], 0)

    def _note_gone(self, node: Affine | Pointwise | Carry | Meeting) -> None:
        if isinstance(node, Affine):
            cut = next((self._cuts[name] for name in node.tensors if name in self._cuts), None)
            gone = np.zeros(len(node.writes), bool) if cut is None else ~np.isin(np.arange(cut.shape[0]), cut.keep[0])
        elif isinstance(node, Meeting):
            gone = self._gone[node.reads[:, 0]]
        else:
            gone = np.logical_or.reduce([self._gone[labels] for labels in reads_of(node)])
        self._gone[node.writes] = gone
        self._short[node.writes[gone]] = np.nan_to_num(self._values[node.writes[gone]])

    def _mix(self, index: int, node: Mix) -> None:
        reads, writes = _left_of(node, self._cuts.get(node.weight))
        self._gone[node.writes] = ~writes
        missing = np.nan_to_num(np.where(reads, self._short[node.reads], self._values[node.reads]))
        if not missing.any():
            return
        amounts = np.einsum("goi,gi->go", summed_kernel(node, self._weights), missing)
        absorber = self._absorbers.get(index)
        # What is gone takes nothing in.
        self._short[node.writes] = amounts if absorber is None else np.where(writes, 0, amounts)
        if absorber is not None:
            self._add(absorber.name, absorber.sign * np.where(writes, amounts, 0).reshape(-1))

    def _affine(self, node: Affine) -> None:
        missing = self._short[node.reads]
        if missing.any() and node.mean is not None and node.settled and self._uses[node.mean] == 1:
            self._add(node.mean, -missing)

    def _pointwise(self, node: Pointwise) -> None:
        absent = [bool(self._absent[labels].all()) for labels in node.labelled]
        if node.func not in SUMS or node.keywords.get("alpha", 1) != 1:
            self._absent[node.writes] = any(absent)
        elif all(absent):
            self._absent[node.writes] = True
        else:
            present = [labels for labels, gone in zip(node.labelled, absent, strict=True) if not gone]
            lost = [self._values[labels] for labels, gone in zip(node.labelled, absent, strict=True) if gone]
            self._short[node.writes] = sum(self._short[labels] for labels in present)
            for constants in lost:
                self._make_up(node, present[0], np.nan_to_num(constants))

    def _make_up(self, node: Pointwise, left: Labels, lost: Array) -> None:
        """What a branch added goes into the bias of what it was added to, if that has one and is read here alone."""
        bias = self._homes.get(left.tobytes())
        if bias is not None and self._uses[bias] == 1 and (self._readers[left] == 1).all():
            self._add(bias, lost)
        else:
            self._short[node.writes] += lost

    def _add(self, name: str, amounts: Array) -> None:
        self.amounts[name] = self.amounts.get(name, 0.0) + amounts


def _is_of(node: Node, layers: Collection[str]) -> bool:
    return any(name.rpartition(".")[0] in layers for name in tensors_of(node))


def _left_of(node: Mix, cut: Cut | None) -> tuple[Flags, Flags]:
    """Which inputs and outputs a cut left to a layer, as (group, read) and (group, written)."""
    reads, writes = np.ones(node.reads.shape, bool), np.ones(node.writes.shape, bool)
    if cut is not None:
        rows, columns = (reads, writes) if node.transposed else (writes, reads)
        rows.reshape(-1)[:], columns[:] = np.isin(np.arange(rows.size), cut.keep[0]), False
        groups = np.flatnonzero(rows.any(axis=1))
        columns[groups[:, None], np.array(cut.keep[1]).reshape(len(groups), -1)] = True
    return reads, writes
