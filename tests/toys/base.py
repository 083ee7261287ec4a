"""What all small networks have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import Layer, conv
from tests.random_nets import randomize


def values(*shape: int) -> Tensor:
    """Random values that are always the same.

    >>> torch.equal(values(2, 3), values(2, 3))
    True
    """
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Toy(Layer):
    """A network with an example of its inputs."""

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        """Positional inputs of the network."""
        return (values(2, 3, 8, 8),)


def make(toy: type[Toy], **options: str) -> Toy:
    """The network in float64 and eval mode, with weights that are always the same.

    >>> from tests.toys.chains import Sequential
    >>> torch.equal(make(Sequential).conv1.weight, make(Sequential).conv1.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        model = toy(**options).double().eval()
    randomize(model, seed=0)
    return model


def conv3(cin: int, cout: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Layer:
    """A 3×3 convolution that keeps the size.

    >>> conv3(3, 6, stride=2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 6, 4, 4])
    """
    return conv(2, cin, cout, 3, stride=stride, padding=1, groups=groups, bias=bias)
