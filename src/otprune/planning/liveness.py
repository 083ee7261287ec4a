"""Which channels are read by something that matters. What is not live can go."""

import numpy as np

from otprune.channels.graph import Affine, ChannelGraph, Flags, Frozen, Labels, Mix, Sum
from otprune.planning.folding import Absorber
from otprune.planning.weights import Array


def live_channels(
    graph: ChannelGraph,
    gone: frozenset[int],
    classes: Labels,
    forced: Flags,
    values: Array,
    absorbers: dict[int, Absorber],
) -> Flags:
    """For every label, whether its channel must stay; `forced` holds the channels that stay in any case.

    A least fixed point: everything is dead until a reader that matters wants it.
    """
    live = forced.copy()
    nodes = [(i, n) for i, n in enumerate(graph.nodes) if isinstance(n, Mix | Affine | Sum) and i not in gone]
    unwanted = {i: _unwanted(n, i in absorbers, values) for i, n in nodes if not isinstance(n, Affine)}
    before = -1
    while before != (before := int(live.sum())):
        for index, node in reversed(nodes):
            if isinstance(node, Affine):
                _through(node, values, classes, live)
            else:
                _wanted(node, unwanted[index], classes, live)
    return live[classes]


def always_live(graph: ChannelGraph, classes: Labels) -> Flags:
    """The channels that are frozen for a reason of their own, and "no channel" itself."""
    forced = np.zeros(graph.count, bool)
    forced[classes[0]] = True
    frozen = {node.parameter for node in graph.of(Frozen)}
    for node in graph.nodes:
        if isinstance(node, Frozen):
            forced[classes[node.labels]] = True
        for labels in _labels_of_parameters(node, frozen):
            forced[classes[labels]] = True
    return forced


def held_by(graph: ChannelGraph, reason: Frozen) -> Labels:
    """The labels that stay for one reason: those it names, and those along the parameter it names."""
    names: set[str | None] = {reason.parameter} - {None}
    along = [labels for node in graph.nodes for labels in _labels_of_parameters(node, names)] if names else []
    return np.concatenate([reason.labels.reshape(-1), *(labels.reshape(-1) for labels in along)])


def _labels_of_parameters(node: object, names: set[str | None]) -> list[Labels]:
    if isinstance(node, Mix):
        wide = [node.reads, node.writes] if node.weight in names else []
        return wide + ([node.writes] if node.bias is not None and node.bias in names else [])
    if isinstance(node, Affine):
        return [node.writes] if names.intersection(node.tensors) else []
    name = getattr(node, "name", None)
    return [node.labels] if name is not None and name in names else []  # type: ignore[attr-defined]


def _unwanted(node: Mix | Sum, foldable: bool, values: Array) -> Flags:
    """Constants that need not be read: zeros, and others where what follows absorbs them exactly."""
    read = values[node.reads]
    return ~np.isnan(read) if foldable else read == 0


def _wanted(node: Mix | Sum, unwanted: Flags, classes: Labels, live: Flags) -> None:
    if isinstance(node, Sum):
        live[classes[node.reads[~unwanted]]] = True
        return
    busy = live[classes[node.writes]].any(axis=1)
    live[classes[node.reads[busy][~unwanted[busy]]]] = True


def _through(node: Affine, values: Array, classes: Labels, live: Flags) -> None:
    """A batch norm that can select needs no channel it does not hand on, and none that is zero: it can put that in."""
    read, written = classes[node.reads], classes[node.writes]
    if node.selectable:
        live[read[live[written] & (values[node.reads] != 0)]] = True
    else:
        live[read[live[written]]] = True
        live[written[live[read]]] = True
