"""Convolutions, batch norms and activations in one, two and three dimensions, for the modules of random networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class Layer(nn.Module):
    """A module that takes tensors and makes one; a type checker is told so, and `forward` needs no casts."""

    if TYPE_CHECKING:

        def __call__(self, *tensors: Tensor) -> Tensor: ...


class EluPlusOne(Layer):
    """A positive activation, as linear attention uses it: one at zero."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.elu(x) + 1


class PlusOne(Layer):
    """A shift: one at zero."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Exp(Layer):
    """An exponential, of a bounded value so that deep networks do not overflow: one at zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(torch.tanh(x))


ZERO_AT_ZERO: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu_inplace": lambda: nn.ReLU(inplace=True),
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "hardswish": nn.Hardswish,
    "tanh": nn.Tanh,
    "leaky_relu": lambda: nn.LeakyReLU(0.1),
    "elu": nn.ELU,
    "none": nn.Identity,
}
OTHER_AT_ZERO: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "hardsigmoid": nn.Hardsigmoid,
    "elu_plus_one": EluPlusOne,
    "plus_one": PlusOne,
    "exp": Exp,
}
ACTIVATIONS = ZERO_AT_ZERO | OTHER_AT_ZERO


def conv(
    dims: int,
    cin: int,
    cout: int,
    kernel: int = 1,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    bias: bool = False,
) -> Layer:
    """A convolution over `dims` dimensions.

    >>> conv(1, 3, 8, kernel=3)
    Conv1d(3, 8, kernel_size=(3,), stride=(1,), bias=False)
    """
    return cast(Layer, CONVS[dims](cin, cout, kernel, stride, padding, dilation, groups, bias))


def linear(cin: int, cout: int, bias: bool = True) -> Layer:
    """A linear layer.

    >>> linear(3, 8)
    Linear(in_features=3, out_features=8, bias=True)
    """
    return cast(Layer, nn.Linear(cin, cout, bias))


def norm(dims: int, channels: int, affine: bool = True) -> Layer:
    """A batch norm over `dims` dimensions, none for features.

    >>> type(norm(0, 3)).__name__
    'BatchNorm1d'
    """
    return cast(Layer, NORMS[dims](channels, affine=affine))


def activation(name: str) -> Layer:
    """The activation of that name.

    >>> activation("silu")
    SiLU()
    """
    return cast(Layer, ACTIVATIONS[name]())
