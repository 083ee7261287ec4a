"""Why channels that cannot go must stay."""

from collections.abc import Iterator, Mapping

import numpy as np
from torch import nn

from otprune.channels.graph import Affine, ChannelGraph, Flags, Frozen, Labels, Mix, Sum, connected
from otprune.planning.branches import Branches
from otprune.planning.constants import constants
from otprune.planning.folding import absorbers
from otprune.planning.liveness import held_by
from otprune.planning.removable import any_vectors
from otprune.planning.ties import channels_by_number
from otprune.planning.weights import Array, Weights

ONLY_ONE = "is its layer's only channel"
SHARING = "shares groups or pieces with channels that stay"


def reasons_to_stay(graph: ChannelGraph, model: nn.Module, removable: Mapping[str, Flags]) -> dict[str, list[str]]:
    """For each batch norm, why those of its channels stay that are not `removable`.

    >>> import torch
    >>> from otprune.channels.trace import trace
    >>> net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    >>> reasons_to_stay(trace(net, torch.zeros(1, 3, 4, 4)), net, {"1": np.array([False, False])})
    {'1': ["is an output of the model (model's end)"]}
    """
    if all(flags.all() for flags in removable.values()):
        return {name: [] for name in removable}
    classes = _with_depthwise(graph, channels_by_number(graph))
    frozen = _flags(graph, classes, ((str(node), held_by(graph, node)) for node in graph.of(Frozen)))
    read = _flags(graph, classes, _read(graph, _values(graph, model, removable)))
    stuck = {name: classes[graph.batch_norms[name].writes[~flags]] for name, flags in removable.items()}
    return {name: _reasons(channels, len(removable[name]), frozen, read) for name, channels in stuck.items()}


def _with_depthwise(graph: ChannelGraph, classes: Labels) -> Labels:
    """A group of one channel goes as a whole, so what holds its result holds what it reads, too."""
    single = [n for n in graph.of(Mix) if n.groups > 1 and n.reads.shape[1] == n.writes.shape[1] == 1]
    return connected(graph.count, [(classes[n.reads[:, 0]], classes[n.writes[:, 0]]) for n in single])[classes]


def _flags(graph: ChannelGraph, classes: Labels, held: Iterator[tuple[str, Labels]]) -> dict[str, Flags]:
    """The channels that stay for each reason."""
    found: dict[str, Flags] = {}
    for reason, labels in held:
        found.setdefault(reason, np.zeros(graph.count, bool))[classes[labels]] = True
    return found


def _values(graph: ChannelGraph, model: nn.Module, removable: Mapping[str, Flags]) -> Array:
    """What would become of the channels that stay if they were zero."""
    weights = Weights(model)
    weights.tensors |= any_vectors(model)
    return constants(graph, {n: np.where(flags, np.nan, 0.0) for n, flags in removable.items()}, Branches(), weights)


def _read(graph: ChannelGraph, values: Array) -> Iterator[tuple[str, Labels]]:
    """Which layers read something else than zero, and of what."""
    takers = absorbers(graph)
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Mix | Sum) or (isinstance(node, Affine) and not node.selectable):
            who, labels = _named(node), node.reads.reshape(-1)
            varies = np.isnan(values[labels])
            yield f"{who} reads it, and no batch norm makes zero all that is added to it", labels[varies]
            if index not in takers and not isinstance(node, Affine):
                constant = labels[~varies & (values[labels] != 0)]
                yield f"{who} reads the constant that becomes of its zeros, and has nowhere to put it", constant


def _named(node: Mix | Sum | Affine) -> str:
    if isinstance(node, Sum):
        return "a sum over channels"
    return f"layer {node.layer if isinstance(node, Affine) else node.weight.rpartition('.')[0]}"


def _reasons(channels: Labels, width: int, frozen: Mapping[str, Flags], read: Mapping[str, Flags]) -> list[str]:
    """All that freezes some of the channels, and of those who read the others as few as explain them."""
    found = [reason for reason, flags in frozen.items() if flags[channels].any()]
    for reason in found:
        channels = channels[~frozen[reason][channels]]
    for reason, flags in read.items():
        if flags[channels].any():
            found.append(reason)
            channels = channels[~flags[channels]]
    if channels.size:
        found.append(ONLY_ONE if width == 1 else SHARING)
    return found
