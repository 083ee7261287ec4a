"""Tensors put beside or behind one another, along channels, places, the batch or a dimension of their own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm


class Cat(Layer):
    """Tensors concatenated along the channels."""

    def forward(self, *tensors: Tensor) -> Tensor:
        return torch.cat(tensors, dim=1)


class CatPositions(Layer):
    """Tensors of one shape, one behind the other along a spatial dimension."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, *tensors: Tensor) -> Tensor:
        return torch.cat(tensors, dim=self.axis)


class CatBatch(Layer):
    """Two tensors of one shape as one batch through the same layers, then apart again and summed or side by side."""

    def __init__(self, dims: int, cin: int, cout: int, bn: bool, act: str, join: str) -> None:
        super().__init__()
        self.conv = conv(dims, cin, cout, 3, padding=1)
        self.bn = norm(dims, cout) if bn else None
        self.act = activation(act)
        self.join = join

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        made = self.conv(torch.cat([x, y]))
        one, other = self.act(made if self.bn is None else self.bn(made)).chunk(2)
        return one + other if self.join == "sum" else torch.cat([one, other], dim=1)


class Stack(Layer):
    """Two tensors of one shape along a dimension of their own, then put together in one of several ways."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.style == "beside":
            return torch.stack([x, y], dim=1).flatten(1, 2)
        if self.style == "interleaved":
            return torch.stack([x, y], dim=2).flatten(1, 2)
        pair = torch.stack([x, y], dim=2)
        return pair.amax(2) if self.style == "max" else pair.mean(2)


class StackConv(Layer):
    """Two tensors of one shape as neighbours along a new dimension, which a convolution runs over."""

    def __init__(self, dims: int, cin: int, cout: int, bias: bool) -> None:
        super().__init__()
        self.conv = conv(dims + 1, cin, cout, 2, bias=bias)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        padded = F.pad(torch.stack([x, y], dim=2), [1, 0] * (x.dim() - 2))
        return self.conv(padded).squeeze(2)


MODULES: dict[str, type[nn.Module]] = {
    "cat": Cat,
    "cat_positions": CatPositions,
    "cat_batch": CatBatch,
    "stack": Stack,
    "stack_conv": StackConv,
}
