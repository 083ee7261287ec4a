"""Sums, products and maxima of several tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm


class Add(Layer):
    """Tensors of one shape, summed; the same tensor may come twice."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, first: Tensor, *others: Tensor) -> Tensor:
        if self.style == "stack":
            return torch.stack([first, *others]).sum(0)
        if self.style == "minus":
            return first - sum(others[1:], others[0])
        if self.style == "weighted":
            return torch.add(0.5 * first, sum(others[1:], others[0]), alpha=0.7)
        if self.style == "inplace":
            for other in others:
                first += other
            return first
        return sum(others, first)


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


class Join(Layer):
    """Tensors of one size and any width, each through its own 1×1 convolution, some with a batch norm, summed."""

    def __init__(self, dims: int, widths: tuple[int, ...], cout: int, bns: tuple[int, ...], act: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(dims, width, cout, 1, bias=True) for width in widths)
        self.bns = nn.ModuleList(norm(dims, cout) if bn else nn.Identity() for bn in bns)
        self.act = activation(act)

    def forward(self, *tensors: Tensor) -> Tensor:
        parts = [bn(conv(x)) for x, conv, bn in zip(tensors, self.convs, self.bns, strict=True)]
        return self.act(sum(parts[1:], parts[0]))


class Multiply(Layer):
    """Two tensors of one shape, multiplied."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class Maximum(Layer):
    """Two tensors of one shape, the larger of each pair of values."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.maximum(x, y)


MODULES: dict[str, type[nn.Module]] = {
    "add": Add,
    "sum_in_place": SumInPlace,
    "join": Join,
    "multiply": Multiply,
    "maximum": Maximum,
}
