"""What the ISTA method of Ye et al. (2018) adds to `ProximalL1`: a penalty for each layer, and rescaling.

weights = layer_penalties(model, example)
layers = rescale(model, example, 0.01)                 # a pretrained model: let γ reach zero sooner
penalty = ProximalL1(model, lam, layer_weights=weights).attach(optimizer)
...train...
rescale(model, example, 1 / 0.01, layers)
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from otprune.channels.graph import (
    Affine,
    Attached,
    Carry,
    ChannelGraph,
    Flags,
    Frozen,
    Hole,
    Labels,
    Meeting,
    Mix,
    Node,
    Pointwise,
    Sum,
)
from otprune.channels.trace import trace
from otprune.errors import PenaltyError
from otprune.planning.branches import SUMS, Branches
from otprune.planning.classes import channel_classes
from otprune.planning.weights import Weights
from otprune.tensors import named_tensors


def layer_penalties(model: nn.Module, example: Any) -> dict[str, float]:
    """Each batch norm's λ_l: what one of its channels costs, as memory and weights, per pixel of the input.

    λ_l = (H·W + k²·c_in + Σ k'²·c_out') / (input height × width): the layer's own output, the kernels that write the
    channel, and those of the following convolutions that read it, where only channels count whose γ is not zero yet.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    >>> layer_penalties(net, torch.zeros(1, 3, 8, 8))
    {'1': 1.484375}
    """
    graph, weights = trace(model, example), Weights(model)
    classes = channel_classes(graph, Branches())
    pixels = _pixels(example)
    return {name: _cost_of(node, graph, classes, weights) / pixels for name, node in graph.batch_norms.items()}


def untied(model: nn.Module, example: Any) -> list[str]:
    """The batch norms whose channels no sum ties to those of another: Ye et al. prune these alone in residual networks.

    >>> from otprune.models import resnet20
    >>> untied(resnet20(), torch.zeros(1, 3, 32, 32))[:2]
    ['blocks.0.bn1', 'blocks.1.bn1']
    """
    graph = trace(model, example)
    classes = channel_classes(graph, Branches())
    written = {name: set(classes[node.writes].tolist()) for name, node in graph.batch_norms.items()}
    shared = Counter(channel for channels in written.values() for channel in channels)
    return [name for name, channels in written.items() if all(shared[channel] == 1 for channel in channels)]


def rescale(model: nn.Module, example: Any, alpha: float, layers: Collection[str] | None = None) -> list[str]:
    """Multiply γ and β by α and divide the weights that read them by α, in place; return the layers this was done to.

    The model computes what it did before. That holds where only ReLU-like operators, pools and sums of rescaled
    channels lie in between; other batch norms are left alone. Undo it with 1/α and the layers returned.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    >>> x = torch.randn(1, 3, 8, 8)
    >>> before = net(x)
    >>> rescale(net, x, 0.01)
    ['1']
    >>> torch.allclose(net(x), before, atol=1e-5)
    True
    """
    if not (alpha > 0 and np.isfinite(alpha)):
        raise PenaltyError(f"α is {alpha}: rescaling needs a positive number, such as 0.01")
    graph = trace(model, example)
    chosen = {name: node for name, node in graph.batch_norms.items() if layers is None or name in layers}
    scaled = _rescalable(graph, chosen)
    tensors = named_tensors(model)
    norms = [name for name, node in chosen.items() if scaled[node.writes].all()]
    with torch.no_grad():
        for tensor in {t for n in norms for t in (chosen[n].weight, chosen[n].bias) if t is not None}:
            tensors[tensor].mul_(alpha)
        for node in {node.weight: node for node in graph.of(Mix)}.values():
            _divide_columns(tensors[node.weight], node, scaled[node.reads], alpha)
    return norms


def _cost_of(norm: Affine, graph: ChannelGraph, classes: Labels, weights: Weights) -> float:
    own = [m for m in graph.of(Mix) if np.intersect1d(m.writes, norm.reads).size]
    following = [m for m in graph.of(Mix) if np.intersect1d(classes[m.reads], classes[norm.writes]).size]
    written_by = sum(_kernel(m, graph) * m.reads.shape[1] for m in own)
    read_by = sum(_kernel(m, graph) * _surviving(m, graph, weights) / m.groups for m in following)
    return float(norm.positions + written_by + read_by)


def _kernel(node: Mix, graph: ChannelGraph) -> int:
    return int(np.prod(graph.shapes[node.weight][2:]))


def _surviving(node: Mix, graph: ChannelGraph, weights: Weights) -> int:
    """How many of the channels that a layer writes are not yet zeroed by the batch norm after it."""
    zero = [n.reads[weights[n.weight] == 0] for n in graph.batch_norms.values() if n.weight is not None]
    return int((~np.isin(node.writes, np.concatenate(zero))).sum())


def _pixels(example: Any) -> int:
    first = next(leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor))
    return int(np.prod(first.shape[2:]))


def _rescalable(graph: ChannelGraph, chosen: dict[str, Affine]) -> Flags:
    """Which labels carry α times their value, once every batch norm is left out that this would change."""
    classes = channel_classes(graph, Branches())
    allowed = np.zeros(graph.count, bool)
    for node in chosen.values():
        allowed[node.writes] = True
    while True:
        scaled = _followed(graph, allowed)
        bad = np.concatenate([classes[labels] for node in graph.nodes for labels in _spoiled(node, scaled)])
        if not bad.size:
            return scaled
        allowed &= ~_norms_touching(graph, classes, np.unique(bad))


def _followed(graph: ChannelGraph, allowed: Flags) -> Flags:
    scaled = allowed.copy()
    for node in graph.nodes:
        if isinstance(node, Carry):
            scaled[node.writes] = scaled[node.reads]
        elif isinstance(node, Pointwise):
            scaled[node.writes] = np.logical_and.reduce([scaled[labels] for labels in node.labelled])
    return scaled


def _spoiled(node: Node, scaled: Flags) -> Iterator[Labels]:
    """Labels read by something that does not pass a factor on unchanged, nor divides it out."""
    if isinstance(node, Pointwise):
        flags = [scaled[labels] for labels in node.labelled]
        mixed = np.logical_xor.reduce(flags) if len(flags) > 1 else np.zeros(len(flags[0]), bool)
        if np.logical_or.reduce(flags).any() and (mixed.any() or not _is_homogeneous(node)):
            yield from (labels[flag] for labels, flag in zip(node.labelled, flags, strict=True))
    elif isinstance(node, Affine | Sum | Carry | Meeting) and getattr(node, "keeps", "nothing") == "nothing":
        yield node.reads[scaled[node.reads]]
    elif isinstance(node, Frozen | Attached):
        yield node.labels[scaled[node.labels]]


def _is_homogeneous(node: Pointwise) -> bool:
    """Whether f(α·x) = α·f(x) for positive α, tried out; of operators on two tensors only a sum is taken for it."""
    if len(node.operands) == 2 and node.func in SUMS:
        return len(node.labelled) == 2
    if len(node.operands) != 1:
        return False
    x = torch.tensor([-7.0, -2.5, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5, 7.0], dtype=torch.float64)

    def f(values: torch.Tensor) -> torch.Tensor:
        arguments = [values.clone() if isinstance(argument, Hole) else argument for argument in node.arguments]
        result: torch.Tensor = node.func(*arguments, **node.keywords)
        return result.double()

    return torch.allclose(f(0.37 * x), 0.37 * f(x), rtol=1e-12, atol=1e-12)


def _norms_touching(graph: ChannelGraph, classes: Labels, bad: Labels) -> Flags:
    touched = np.zeros(graph.count, bool)
    for node in graph.batch_norms.values():
        if np.isin(classes[node.writes], bad).any():
            touched[node.writes] = True
    return touched


def _divide_columns(weight: torch.Tensor, node: Mix, scaled: Flags, alpha: float) -> None:
    """Divide what a weight multiplies the scaled channels with, group by group."""
    if not scaled.any():
        return
    factors = torch.from_numpy(np.where(scaled, 1 / alpha, 1.0)).to(weight.device, weight.dtype)
    tail = (1,) * (weight.dim() - 2)
    if node.transposed:
        weight.mul_(factors.reshape(-1, 1, *tail))
    else:
        weight.mul_(factors.repeat_interleave(weight.shape[0] // node.groups, 0).reshape(weight.shape[0], -1, *tail))
