"""Networks whose code counts on the sizes that its tensors have before pruning; none of them can be pruned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.net_layers import conv, norm
from tests.toys.base import Toy, conv3


class HardCodedView(Toy):
    """Values counted in a view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = nn.Linear(6 * 8 * 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.view(-1, 6 * 8 * 8))


class HardCodedGroups(Toy):
    """Groups of three channels each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        shuffled = x.view(2, 2, 3, 8, 8).transpose(1, 2)
        return self.head(shuffled.flatten(1, 2))


class HardCodedSplit(Toy):
    """A split after three channels, read by convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3 = conv3(3, 4), conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(3, dim=1)
        return self.conv2(one) + self.conv3(other)


class HardCodedSplitNormalized(Toy):
    """A split after three channels, read by batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.bn2, self.bn3 = norm(2, 3), norm(2, 3)
        self.head = conv(2, 6, 4, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(3, dim=1)
        one = self.bn2(one)
        return self.head(torch.cat([one, self.bn3(other)], 1))
