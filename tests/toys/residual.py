"""Sums: residual blocks of every sort, and sums of other things."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import activation, conv, norm
from tests.toys.base import Toy, conv3


class ResidualIdentity(Toy):
    """Post-activation, the input of the block added as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 5), norm(2, 5)
        self.conv3, self.bn3 = conv3(5, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(x)))
        return self.head(torch.relu(self.bn3(self.conv3(out)) + x))


class ResidualProjection(Toy):
    """Post-activation, the input of the block projected to another width and size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 8, stride=2), norm(2, 8)
        self.project, self.bn_project = conv(2, 6, 8, stride=2), norm(2, 8)
        self.head = conv(2, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.conv2(x)) + self.bn_project(self.project(x))))


class ResidualBranches(Toy):
    """Two branches and the identity in one sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 6), norm(2, 6)
        self.conv3, self.bn3 = conv(2, 6, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.conv2(x)) + self.bn3(self.conv3(x)) + x))


class SumWithBareConv(Toy):
    """A convolution without a batch norm added to one with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2 = conv3(3, 6, bias=True)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x)) + self.conv2(x)))


class AddedToItself(Toy):
    """A tensor added to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x))
        return self.head(x + x)


class InPlace(Toy):
    """In-place ReLU and an in-place sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 6), norm(2, 6)
        self.relu = activation("relu_inplace")
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(x))
        out += x
        return self.head(self.relu(out))


class PreActivation(Toy):
    """Two pre-activation blocks and the final batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3(3, 6)
        self.bn1, self.conv2 = norm(2, 6), conv3(6, 6)
        self.bn2, self.conv3 = norm(2, 6), conv3(6, 6)
        self.bn_final = norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        x = x + self.conv2(torch.relu(self.bn1(x)))
        x = x + self.conv3(torch.relu(self.bn2(x)))
        return self.head(torch.relu(self.bn_final(x)))


class NormalizedShortcut(Toy):
    """Beside each convolution a batch norm of its input: what one block drops the next still makes a constant of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.bn_of_input = conv3(3, 3), norm(2, 3), norm(2, 3)
        self.conv2, self.bn2, self.bn_of_block = conv3(3, 3), norm(2, 3), norm(2, 3)
        self.head = conv3(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)) + self.bn_of_input(x))
        return self.head(torch.relu(self.bn2(self.conv2(x)) + self.bn_of_block(x)))
