"""The batch norms of a model: given random values to work with, then half of their channels taken away."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.abstract import arguments

Mask = Mapping[str, Sequence[int]]

_LEAST_VARIANCE = 1e-2


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Those with scaling factors, by name."""
    return {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm) and m.weight is not None}


def settle(model: nn.Module, example: Any) -> None:
    """Give every batch norm random scaling factors and biases, and the statistics of what it gets from the example.

    As made, many have a scaling factor of zero or one and a mean of zero, which would hide mistakes; and values that
    grow from layer to layer would leave a detector with thousands of equal scores.
    """
    layers = batch_norms(model).values()
    for layer in layers:
        nn.init.uniform_(layer.weight, 0.5, 1.5)
        nn.init.normal_(layer.bias, std=0.1)
    handles = [layer.register_forward_pre_hook(_take_statistics) for layer in layers if layer.track_running_stats]
    args, kwargs = arguments(example)
    with torch.no_grad():
        model(*args, **kwargs)
    for handle in handles:
        handle.remove()


def _take_statistics(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
    values = inputs[0].transpose(0, 1).flatten(1)
    layer.get_buffer("running_mean").copy_(values.mean(1))
    layer.get_buffer("running_var").copy_(values.var(1, correction=0).clamp(min=_LEAST_VARIANCE))


def zero(model: nn.Module, mask: Mask) -> None:
    """Make the masked channels zero, so that the model is its own masked original."""
    layers = batch_norms(model)
    with torch.no_grad():
        for name, channels in mask.items():
            layers[name].weight[channels] = 0
            layers[name].bias[channels] = 0
