"""The modules of random networks where tensors meet along other dimensions than channels, or are changed in place."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm


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


class PixelShuffle(Layer):
    """A convolution four of whose channels become the pixels of one."""

    def __init__(self, cin: int, cout: int, bn: bool, style: str) -> None:
        super().__init__()
        self.conv = conv(2, cin, 4 * cout, 3, padding=1, bias=not bn)
        self.bn = norm(2, 4 * cout) if bn else None
        self.shuffle = nn.PixelShuffle(2) if style == "module" else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x if self.bn is None else self.bn(x)
        found: Tensor = F.pixel_shuffle(x, 2) if self.shuffle is None else self.shuffle(x)
        return found


class PixelUnshuffle(Layer):
    """Four pixels of a channel become channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, 2)


class SumInPlace(Layer):
    """Two tensors summed, and the sum changed where it lies."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style
        self.relu = activation("relu_inplace")

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        out = x + y
        if self.style == "module":
            return self.relu(out)
        if self.style == "functional":
            return F.relu(out, inplace=True)
        if self.style == "ignored":
            out.mul_(0.5)
        elif self.style == "operand":
            out += x
        elif self.style == "number":
            out += 0.7
        else:
            out.relu_()
        return out


MEETINGS: dict[str, type[nn.Module]] = {
    "cat_positions": CatPositions,
    "cat_batch": CatBatch,
    "stack": Stack,
    "stack_conv": StackConv,
    "pixel_shuffle": PixelShuffle,
    "pixel_unshuffle": PixelUnshuffle,
    "sum_in_place": SumInPlace,
}
