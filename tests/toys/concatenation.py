"""Channels put beside one another, and taken apart."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import conv, norm
from tests.toys.base import Toy, conv3


class Dense(Toy):
    """Batch norm, ReLU and convolution on the concatenation of all before."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3(3, 4)
        self.bn1, self.conv2 = norm(2, 4), conv3(4, 3)
        self.bn2, self.conv3 = norm(2, 7), conv3(7, 3)
        self.bn_final = norm(2, 10)
        self.head = conv(2, 10, 4)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.conv1(x)]
        features.append(self.conv2(torch.relu(self.bn1(features[0]))))
        features.append(self.conv3(torch.relu(self.bn2(torch.cat(features, 1)))))
        return self.head(torch.relu(self.bn_final(torch.cat(features, 1))))


class TwoReaders(Toy):
    """Two batch norms read the same tensor, and may want different channels of it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3(3, 6)
        self.bn1, self.conv2 = norm(2, 6), conv3(6, 4)
        self.bn2, self.conv3 = norm(2, 6), conv3(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        return self.conv2(torch.relu(self.bn1(x))) + self.conv3(torch.relu(self.bn2(x)))


class _Halves(Toy):
    """Two halves of the channels, each with its own reader."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3 = conv3(3, 4), conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.halves(torch.relu(self.bn1(self.conv1(x))))
        return self.conv2(one) + self.conv3(other)

    def halves(self, x: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError


class Chunk(_Halves):
    """Two halves of the channels, by their number."""

    def halves(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(2, 1)


class Split(_Halves):
    """Two halves of the channels, by the size of a half."""

    def halves(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.split(x, x.shape[1] // 2, dim=1)


class Slice(_Halves):
    """Two halves of the channels, by slices."""

    def halves(self, x: Tensor) -> tuple[Tensor, ...]:
        half = x.shape[1] // 2
        return x[:, :half], x[:, half:]


class CatWithInput(Toy):
    """A normalized tensor beside the raw input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 9, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(image)))
        return self.head(torch.cat([x, image], dim=1))


class RememberedSplit(Toy):
    """A split into two pieces of a size that the module remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 6
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(3, 3), norm(2, 3)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.relu(self.bn1(self.conv1(x))).split(self.width // 2, dim=1)
        return self.head(torch.cat([torch.relu(self.bn2(self.conv2(one))), other], dim=1))


class RememberedSizes(Toy):
    """A split into pieces of different sizes, all remembered, and of what is left of a number remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.width, self.first = [2, 4], 6, 4
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3, self.bn2 = conv3(2, 3), conv(2, 4, 3), norm(2, 6)
        self.conv4, self.conv5 = conv3(4, 4), conv(2, 2, 4)

    def forward(self, x: Tensor) -> Tensor:
        one, other = torch.split(torch.relu(self.bn1(self.conv1(x))), self.sizes, 1)
        x = torch.relu(self.bn2(torch.cat([self.conv2(one), self.conv3(other)], dim=1)))
        one, other = x.split([self.first, self.width - self.first], dim=1)
        return self.conv4(one) + self.conv5(other)


class SizedByAnother(Toy):
    """A view in which one tensor gets the number of channels of another."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.bn2, self.conv2 = norm(2, 6), conv(2, 6, 4)
        self.conv3 = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        size, channels, height, width = x.shape
        flat = self.bn2(x).reshape(size, channels, -1)
        return self.conv2(flat.reshape(size, channels, height, width)) + self.conv3(x)
