"""Which channels of which batch norms can go at all, whatever their scaling factors are."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from otprune.channels.graph import ChannelGraph, Flags
from otprune.planning.branches import Branches
from otprune.planning.solve import Limits, solve
from otprune.planning.weights import Array, Weights
from otprune.tensors import named_tensors

ENOUGH_IN_VAIN = 2  # which channels a layer keeps is also a matter of chance


def removable_channels(graph: ChannelGraph, model: nn.Module) -> dict[str, Flags]:
    """For each batch norm, the channels that go if it finds them negligible and all that they are tied to agree.

    Planned with every channel negligible. Each layer then keeps one all the same, so that is planned again with others
    preferred, those that went most often above all, until no other goes; and at last with the rest alone negligible.

    >>> from otprune.channels.trace import trace
    >>> net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
    >>> removable_channels(trace(net, torch.zeros(1, 3, 4, 4)), net)
    {'1': array([ True,  True]), '4': array([False, False])}
    """
    random, vectors = np.random.default_rng(0), any_vectors(model)
    everything = {name: np.ones(len(node.writes), bool) for name, node in graph.batch_norms.items()}
    times_gone = {name: np.zeros(len(flags)) for name, flags in everything.items()}
    in_vain = 0
    while in_vain < ENOUGH_IN_VAIN:
        before = _found(times_gone)
        preferred = {name: 1 + times + random.random(len(times)) / 2 for name, times in times_gone.items()}
        gone = _gone(graph, _weights(graph, model, vectors, preferred), everything)
        times_gone = {name: times + gone[name] for name, times in times_gone.items()}
        in_vain = 0 if _found(times_gone) > before else in_vain + 1
    rest = {name: times == 0 for name, times in times_gone.items()}
    gone = _gone(graph, _weights(graph, model, vectors, times_gone), rest)
    return {name: ~flags | (flags & gone[name]) for name, flags in rest.items()}


def any_vectors(model: nn.Module) -> dict[str, Tensor]:
    """Others in the place of the model's biases and statistics: that one is zero must not make a difference.

    >>> list(any_vectors(nn.Linear(2, 1)))
    ['bias']
    """
    random = torch.Generator().manual_seed(0)
    own = {name: t for name, t in named_tensors(model).items() if t.dim() == 1 and t.is_floating_point()}
    return {name: torch.rand(len(tensor), generator=random) + 0.5 for name, tensor in own.items()}


def _found(times_gone: Mapping[str, Array]) -> int:
    return sum(int((times > 0).sum()) for times in times_gone.values())


def _weights(
    graph: ChannelGraph, model: nn.Module, vectors: Mapping[str, Tensor], preferred: Mapping[str, Array]
) -> Weights:
    """The model's, with scaling factors that have the planner keep what is most `preferred`."""
    weights = Weights(model)
    weights.tensors |= vectors
    weights.tensors |= {str(graph.batch_norms[name].weight): torch.from_numpy(row) for name, row in preferred.items()}
    return weights


def _gone(graph: ChannelGraph, weights: Weights, negligible: Mapping[str, Flags]) -> dict[str, Flags]:
    live = solve(graph, negligible, Branches(), weights, Limits()).live
    return {name: ~live[node.writes] for name, node in graph.batch_norms.items()}
