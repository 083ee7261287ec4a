"""Operators that look at all channels at once."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import Layer, conv, norm
from tests.toys.base import Toy, conv3


class _Across(Toy):
    """Conv and batch norm, the operator, and a head on what it makes."""

    def __init__(self, head: Layer) -> None:
        super().__init__()
        self.conv1, self.bn1, self.head = conv3(3, 6), norm(2, 6), head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.across(self.bn1(self.conv1(x))))

    def across(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class _IntoOne(_Across):
    """One channel is made of all."""

    def __init__(self) -> None:
        super().__init__(head=conv3(1, 4))


class _IntoAsMany(_Across):
    """Every channel is made of all."""

    def __init__(self) -> None:
        super().__init__(head=conv(2, 6, 4))


class ChannelMean(_IntoOne):
    """The mean of the channels, which counts them."""

    def across(self, x: Tensor) -> Tensor:
        return torch.relu(x).mean(dim=1, keepdim=True)


class ChannelMax(_IntoOne):
    """The maximum of the channels."""

    def across(self, x: Tensor) -> Tensor:
        return torch.relu(x).amax(dim=1, keepdim=True)


class ChannelSoftmax(_IntoAsMany):
    """A softmax over the channels."""

    def across(self, x: Tensor) -> Tensor:
        return torch.softmax(x, dim=1)


class UnknownOperator(_IntoAsMany):
    """An operator that mixes channels in its own way."""

    def across(self, x: Tensor) -> Tensor:
        return torch.relu(x).cumsum(dim=1)
