"""Which half of the channels is zeroed."""

import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from torch import nn

from otprune.channels.trace import trace
from otprune.planning.branches import Branches
from otprune.planning.classes import channel_classes

from .batch_norms import Mask, batch_norms

Keys = Mapping[str, Sequence[Hashable]]


def agreeing(model: nn.Module, example: Any, seed: int) -> Mask:
    """Drawn once for all channels that sums tie together, so that the batch norms that write them agree.

    Batch norms that no example reaches are left out: nobody can tell what their channels are.
    """
    graph = trace(model, example)
    classes = channel_classes(graph, Branches())
    named = batch_norms(model)
    tied = {name: classes[node.writes].tolist() for name, node in graph.batch_norms.items() if name in named}
    return drawn(tied, seed)


def by_position(model: nn.Module, seed: int) -> Mask:
    """Drawn once for channels of the same number, for models whose sums are not known."""
    return drawn({name: range(layer.num_features) for name, layer in batch_norms(model).items()}, seed)


def independent(model: nn.Module, layers: Collection[str], seed: int) -> Mask:
    """Drawn for each of these batch norms on its own."""
    sizes = {name: layer.num_features for name, layer in batch_norms(model).items() if name in layers}
    return drawn({name: [(name, i) for i in range(channels)] for name, channels in sizes.items()}, seed)


def drawn(keys: Keys, seed: int) -> Mask:
    """Of every two neighbours one is zeroed, unless an earlier layer with the same key decided about them already.

    So every layer loses half of its channels, and every group of a grouped convolution as many as the others. A layer
    all of whose channels were decided about elsewhere keeps one of them at least.

    >>> mask = drawn({"a": [0, 1, 2, 3], "b": [2, 3]}, seed=0)
    >>> [len(channels) for channels in mask.values()]
    [2, 1]
    >>> drawn({"a": [0, 1], "b": [0], "c": [1]}, seed=0)["b"]
    []
    >>> [2 + channel for channel in mask["b"]] == [channel for channel in mask["a"] if channel > 1]
    True
    """
    generator = random.Random(seed)
    zeroed: dict[Hashable, bool] = {}
    for layer_keys in keys.values():
        fresh = [key for key in dict.fromkeys(layer_keys) if key not in zeroed]
        for pair in zip(fresh[::2], fresh[1::2], strict=False):
            zeroed |= zip(pair, generator.choice([(True, False), (False, True)]), strict=True)
    for layer_keys in keys.values():
        if layer_keys and all(zeroed.get(key) for key in layer_keys):
            zeroed[layer_keys[0]] = False
    return {name: [i for i, key in enumerate(ks) if zeroed.get(key)] for name, ks in keys.items()}
