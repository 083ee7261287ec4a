"""Operators that look at all channels at once."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import conv, norm
from tests.toys.base import Toy, conv3


class ChannelMean(Toy):
    """The mean of the channels, which counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv3(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.mean(dim=1, keepdim=True))


class ChannelMax(Toy):
    """The maximum of the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv3(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.amax(dim=1, keepdim=True))


class ChannelSoftmax(Toy):
    """A softmax over the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.softmax(self.bn1(self.conv1(x)), dim=1))


class UnknownOperator(Toy):
    """An operator that mixes channels in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.cumsum(dim=1))
