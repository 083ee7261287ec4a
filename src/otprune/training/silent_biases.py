"""Biases that train for nothing: what a layer adds to a channel, the batch norm after it subtracts again."""

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from otprune.channels.graph import Affine, ChannelGraph, Labels, Mix, reads_of
from otprune.channels.trace import trace


def silent_biases(model: nn.Module, example: Tensor) -> dict[str, str]:
    """Each bias of a conv or linear layer that only a batch norm in training reads, and that one's running mean.

    In training the loss does not depend on such a bias: its gradient is zero, and what it adds to the running mean is
    all that is left of it.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> silent_biases(net, torch.zeros(2, 3, 8, 8))
    {'0.bias': '1.running_mean'}
    """
    graph = trace(model, example)
    mixes = list(graph.of(Mix))
    used = [mix.bias for mix in mixes]
    readers = _readers(graph)
    found = {}
    for mix in mixes:
        norm = _only_norm(graph, mix.writes.reshape(-1), readers)
        if norm is None or mix.bias is None or used.count(mix.bias) > 1:
            continue
        if norm.mean is not None and _in_training(model, norm) and _owned(model, mix.bias):
            found[mix.bias] = norm.mean
    return found


def _readers(graph: ChannelGraph) -> Labels:
    """How many operators look at each label."""
    counts = np.zeros(graph.count, np.int64)
    for node in graph.nodes:
        for labels in reads_of(node):
            counts[np.unique(labels)] += 1
    return counts


def _only_norm(graph: ChannelGraph, written: Labels, readers: Labels) -> Affine | None:
    """The batch norm that reads all these labels, if nothing else reads them."""
    norms = (node for node in graph.of(Affine) if np.array_equal(node.reads, written))
    return next(norms, None) if (readers[written] == 1).all() else None


def _in_training(model: nn.Module, norm: Affine) -> bool:
    """Whether it normalizes by the statistics of its batch."""
    module = model.get_submodule(norm.layer)
    return isinstance(module, _BatchNorm) and module.training


def _owned(model: nn.Module, bias: str) -> bool:
    """Whether it is the bias of a layer that does without one if told so."""
    owner, _, name = bias.rpartition(".")
    return name == "bias" and isinstance(model.get_submodule(owner), _ConvNd | nn.Linear)
