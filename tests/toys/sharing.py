"""Layers that run more than once."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import conv, norm
from tests.toys.base import Toy, conv3, values


class SharedConv(Toy):
    """The same convolution twice, each time with another batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.shared, self.bn2, self.bn3 = conv3(6, 6), norm(2, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.shared(x)))
        return self.head(torch.relu(self.bn3(self.shared(x))))


class SharedConvAndNorm(Toy):
    """The same convolution and batch norm twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.shared, self.bn2 = conv3(6, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        for _ in range(2):
            x = torch.relu(self.bn2(self.shared(x)))
        return self.head(x)


class SharedTowers(Toy):
    """The same tower on two inputs, the results side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 12, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        towers = [torch.relu(self.bn1(self.conv1(tensor))) for tensor in (x, y)]
        return self.head(torch.cat(towers, dim=1))

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(2, 3, 8, 8), values(2, 3, 8, 8).flip(0))
