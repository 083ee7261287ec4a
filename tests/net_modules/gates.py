"""Channels scaled by what is computed from them or from another tensor."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, linear, norm


class SqueezeExcite(Layer):
    """A gate per channel, computed from the means of all channels by 1×1 convolutions."""

    def __init__(self, dims: int, channels: int, mid: int, bn: bool, gate: str) -> None:
        super().__init__()
        self.pool: Layer = getattr(nn, f"AdaptiveAvgPool{dims}d")(1)
        self.reduce = conv(dims, channels, mid, 1, bias=True)
        self.bn = norm(dims, mid) if bn else None
        self.relu = activation("relu")
        self.expand = conv(dims, mid, channels, 1, bias=True)
        self.gate = activation(gate)

    def forward(self, x: Tensor) -> Tensor:
        s = self.reduce(self.pool(x))
        s = self.relu(s if self.bn is None else self.bn(s))
        return x * self.gate(self.expand(s))


class SqueezeExciteLinear(Layer):
    """A gate per channel by linear layers, reshaped to the rank of the tensor."""

    def __init__(self, channels: int, mid: int, gate: str) -> None:
        super().__init__()
        self.reduce = linear(channels, mid)
        self.relu = activation("relu")
        self.expand = linear(mid, channels)
        self.gate = activation(gate)

    def forward(self, x: Tensor) -> Tensor:
        s = x.flatten(2).mean(-1)
        s = self.gate(self.expand(self.relu(self.reduce(s))))
        return x * s.view(x.shape[0], x.shape[1], *[1] * (x.dim() - 2))


class SpatialGate(Layer):
    """A gate of one channel over all places, from a convolution or from the mean and the maximum of the channels."""

    def __init__(self, dims: int, channels: int, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled
        self.conv = conv(dims, 2 if pooled else channels, 1, 3, padding=1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        read = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], dim=1) if self.pooled else x
        return x * torch.sigmoid(self.conv(read))


class ConvGate(Layer):
    """A gate per channel and place by a 1×1 convolution."""

    def __init__(self, dims: int, channels: int, bn: bool) -> None:
        super().__init__()
        self.conv = conv(dims, channels, channels, 1, bias=True)
        self.bn = norm(dims, channels) if bn else None

    def forward(self, x: Tensor) -> Tensor:
        gate = self.conv(x)
        return x * torch.sigmoid(gate if self.bn is None else self.bn(gate))


class Glu(Layer):
    """One half of the channels gates the other half."""

    def __init__(self, functional: bool) -> None:
        super().__init__()
        self.functional = functional

    def forward(self, x: Tensor) -> Tensor:
        if self.functional:
            return F.glu(x, dim=1)
        x1, x2 = x.chunk(2, dim=1)
        return x1 * torch.sigmoid(x2)


class Modulate(Layer):
    """Features of one tensor scale the channels of another."""

    def __init__(self, features: int, channels: int) -> None:
        super().__init__()
        self.linear = linear(features, channels)

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        scale = torch.tanh(self.linear(features))
        return x * scale[(..., *[None] * (x.dim() - 2))]


MODULES: dict[str, type[nn.Module]] = {
    "squeeze_excite": SqueezeExcite,
    "squeeze_excite_linear": SqueezeExciteLinear,
    "spatial_gate": SpatialGate,
    "conv_gate": ConvGate,
    "glu": Glu,
    "modulate": Modulate,
}
