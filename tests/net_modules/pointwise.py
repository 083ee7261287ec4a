"""Batch norms, activations, factors, offsets and noise: what leaves channels and places where they are."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from tests.net_layers import Layer, activation, norm


class BatchNorm(Layer):
    """A batch norm alone, wherever it falls: on an input, on a concatenation, on a sum, at the end."""

    def __init__(self, dims: int, channels: int, affine: bool) -> None:
        super().__init__()
        self.bn = norm(dims, channels, affine)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x)


class NormAct(Layer):
    """A batch norm and an activation: what closes a pre-activation network."""

    def __init__(self, dims: int, channels: int, act: str) -> None:
        super().__init__()
        self.bn = norm(dims, channels)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(x))


class Activation(Layer):
    """An activation alone."""

    def __init__(self, act: str) -> None:
        super().__init__()
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class PRelu(Layer):
    """An activation with a parameter per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.act = cast(Layer, nn.PReLU(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class Dropout(Layer):
    """Dropout of values or of whole channels."""

    def __init__(self, dims: int, channelwise: bool) -> None:
        super().__init__()
        self.dropout: Layer = getattr(nn, f"Dropout{dims}d" if channelwise else "Dropout")(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x)


class LayerScale(Layer):
    """A learned factor per channel."""

    def __init__(self, dims: int, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, *[1] * dims))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Constant(Layer):
    """A constant added: a number, a buffer or a parameter with a value per channel."""

    def __init__(self, dims: int, channels: int, style: str) -> None:
        super().__init__()
        value = torch.ones(1, channels, *[1] * dims)
        if style == "parameter":
            self.offset: Tensor | float = nn.Parameter(value)
        elif style == "buffer":
            self.register_buffer("offset", value)
        else:
            self.offset = 0.7

    def forward(self, x: Tensor) -> Tensor:
        return x + self.offset


MODULES: dict[str, type[nn.Module]] = {
    "batch_norm": BatchNorm,
    "norm_act": NormAct,
    "activation": Activation,
    "prelu": PRelu,
    "dropout": Dropout,
    "layer_scale": LayerScale,
    "constant": Constant,
}
