"""The fixed point: what is masked, what that makes constant, what is then dead, what must stay all the same."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from otprune.channels.graph import Affine, ChannelGraph, Flags, Labels
from otprune.planning.branches import Branches, tensors_of
from otprune.planning.classes import channel_classes
from otprune.planning.constants import constants
from otprune.planning.constraints import unmet
from otprune.planning.folding import Absorber, absorbers
from otprune.planning.liveness import always_live, live_channels
from otprune.planning.weights import Array, Weights


@dataclass(frozen=True, eq=False)
class Solution:
    """Which labels stay; which channels of which batch norms are zero; what constants the readers of others lose.

    `weights` has as used what the constants were computed from.
    """

    live: Flags
    masked: Mapping[str, Flags]
    values: Array
    absorbers: Mapping[int, Absorber]
    branches: Branches
    weights: Weights


@dataclass(frozen=True)
class Limits:
    """What the user asked to keep."""

    ignore: Collection[str] = ()
    round_to: int = 1
    max_ratio: float = 1.0

    @property
    def keeping(self) -> list[str]:
        """Those that negligible channels may stay for.

        >>> Limits(round_to=8).keeping
        ['round_to=8']
        """
        set_by_user = {"round_to": self.round_to > 1, "max_ratio": self.max_ratio < 1}
        return [f"{name}={getattr(self, name)}" for name, is_set in set_by_user.items() if is_set]


def solve(
    graph: ChannelGraph, negligible: Mapping[str, Flags], branches: Branches, weights: Weights, limits: Limits
) -> Solution:
    """Remove as many of the negligible channels as can go exactly; those that cannot are left as they were."""
    classes = channel_classes(graph, branches)
    scores = _scores(graph, classes, weights)
    takers = absorbers(graph)
    forced = always_live(graph, classes)
    forced[classes[_kept_by_limits(graph, branches, weights, limits)]] = True
    masked = dict(negligible)
    while True:
        zeros = {name: np.where(flags, 0.0, np.nan) for name, flags in masked.items()}
        reading = weights.afresh()
        values = constants(graph, zeros, branches, reading)
        live = live_channels(graph, branches.nodes, classes, forced, values, takers)
        more = unmet(graph, branches.nodes, live, scores, limits.round_to)
        if more.size:
            forced[classes[more]] = True
            continue
        left = _still_masked(graph, branches, masked, live)
        if all(np.array_equal(left[name], masked[name]) for name in masked):
            return Solution(live, masked, values, takers, branches, reading)
        masked = left


def _still_masked(
    graph: ChannelGraph, branches: Branches, masked: Mapping[str, Flags], live: Flags
) -> dict[str, Flags]:
    """A channel that stays is left as it was; the end of a branch that goes is zero whatever else its labels meet."""
    ends = {graph.nodes[index].layer for index in branches.ends}  # type: ignore[union-attr]
    norms = graph.batch_norms
    return {name: flags if name in ends else flags & ~live[norms[name].writes] for name, flags in masked.items()}


def _scores(graph: ChannelGraph, classes: Labels, weights: Weights) -> Array:
    """How important each label is: the largest scaling factor that acts on its channel."""
    scores = np.zeros(graph.count)
    for node in graph.batch_norms.values():
        gammas = np.abs(weights[node.weight])  # type: ignore[index]
        for labels in (node.reads, node.writes):
            np.fmax.at(scores, classes[labels], gammas)  # a layer left alone may hold NaN
    return scores[classes]


def _kept_by_limits(graph: ChannelGraph, branches: Branches, weights: Weights, limits: Limits) -> Labels:
    kept = [np.zeros(0, np.int64)]
    for index, node in enumerate(graph.nodes):
        if index in branches.nodes:
            continue
        if any(is_ignored(name, limits.ignore) for name in tensors_of(node)):
            kept += [node.writes.reshape(-1), node.reads.reshape(-1)]  # type: ignore[union-attr]
        elif isinstance(node, Affine) and node.weight is not None:
            kept.append(_largest(node, np.abs(weights[node.weight]), limits.max_ratio))
    return np.concatenate(kept)


def _largest(node: Affine, gammas: Array, max_ratio: float) -> Labels:
    count = len(gammas) - int(np.floor(max_ratio * len(gammas) + 1e-9))
    return node.writes[np.argsort(-gammas, kind="stable")[:count]]


def is_ignored(tensor: str, ignore: Collection[str]) -> bool:
    """Whether a parameter belongs to one of the named layers: a module's name, its parent's, or a pattern."""
    path = tensor.rpartition(".")[0]
    return any(path == name or path.startswith(f"{name}.") or fnmatchcase(path, name) for name in ignore)
