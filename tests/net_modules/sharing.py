"""Layers that run more than once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm


class SharedInARow(Layer):
    """The same convolution twice in a row, its batch norm shared, separate or absent."""

    def __init__(self, dims: int, channels: int, bn: str, act: str) -> None:
        super().__init__()
        self.conv = conv(dims, channels, channels, 3, padding=1)
        self.bn1 = norm(dims, channels) if bn != "none" else nn.Identity()
        self.bn2 = norm(dims, channels) if bn == "separate" else self.bn1
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn1(self.conv(x)))
        return self.act(self.bn2(self.conv(x)))


class SharedTowers(Layer):
    """The same convolution and batch norm on two tensors, one after the other; the results summed or side by side."""

    def __init__(self, dims: int, cin: int, cout: int, bn: bool, join: str) -> None:
        super().__init__()
        self.conv = conv(dims, cin, cout, 3, padding=1)
        self.bn = norm(dims, cout) if bn else None
        self.join = join

    def tower(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return torch.relu(x if self.bn is None else self.bn(x))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.join == "sum":
            return self.tower(x) + self.tower(y)
        return torch.cat([self.tower(x), self.tower(y)], dim=1)


MODULES: dict[str, type[nn.Module]] = {
    "shared_in_a_row": SharedInARow,
    "shared_towers": SharedTowers,
}
