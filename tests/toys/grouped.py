"""Convolutions in groups, down to one channel a group."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import conv, norm
from tests.net_modules.rearrangement import shuffled
from tests.toys.base import Toy, conv3


class Depthwise(Toy):
    """A depthwise convolution between two pointwise ones."""

    filters = 1

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        width = 6 * self.filters
        self.depthwise, self.bn2 = conv3(6, width, groups=6), norm(2, width)
        self.head = conv(2, width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.depthwise(x))))


class DepthwiseMultiplier(Depthwise):
    """A depthwise convolution with two filters a channel."""

    filters = 2


class Grouped(Toy):
    """A convolution in three groups."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.grouped, self.bn2 = conv3(6, 9, groups=3), norm(2, 9)
        self.head = conv(2, 9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.grouped(x))))


class Shuffle(Toy):
    """Channels shuffled between two grouped convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 8, groups=2), norm(2, 8)
        self.head = conv(2, 8, 4, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = shuffled(torch.relu(self.bn2(self.conv2(x))), 2)
        return self.head(x)
