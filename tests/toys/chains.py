"""One layer after the other: convolutions of every sort, linear layers, batch norms, pools."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, linear, norm
from tests.toys.base import Toy, conv3, values


class Sequential(Toy):
    """Conv, batch norm, ReLU, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 8), norm(2, 8)
        self.head = conv(2, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.conv2(x))))


class Activated(Toy):
    """Conv, batch norm and an activation of any name."""

    def __init__(self, act: str = "relu") -> None:
        super().__init__()
        self.conv1, self.bn1, self.act = conv3(3, 6), norm(2, 6), activation(act)
        self.head = conv3(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.bn1(self.conv1(x))))


class ConvOptions(Toy):
    """Biases, strides, dilations, kernels with and without padding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(2, 3, 6, 3, stride=2, bias=True), norm(2, 6)
        self.conv2, self.bn2 = conv(2, 6, 8, 3, padding=2, dilation=2), norm(2, 8)
        self.head = conv(2, 8, 4, 2, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.conv2(x))))


class FlattenIntoLinear(Toy):
    """All values of all channels into a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = linear(6 * 8 * 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.flatten(1))


class PoolIntoLinear(Toy):
    """The means of the channels into a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Linears(Toy):
    """Linear layers with batch norms, no convolution at all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.bn1 = linear(5, 8), norm(0, 8)
        self.linear2, self.bn2 = linear(8, 6), norm(0, 6)
        self.head = linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.linear1(x)))
        return self.head(torch.relu(self.bn2(self.linear2(x))))

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(4, 5),)


class Transposed(Toy):
    """A transposed convolution that doubles the size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.up, self.bn2 = cast(Layer, nn.ConvTranspose2d(6, 8, 2, stride=2)), norm(2, 8)
        self.head = conv(2, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.up(x))))


class _Dimensional(Toy):
    """Convolutions over another number of dimensions than two."""

    dims: int

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(self.dims, 3, 6, 3, padding=1), norm(self.dims, 6)
        self.head = conv(self.dims, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x))))


class OneDimensional(_Dimensional):
    """Convolutions over sequences."""

    dims = 1

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(2, 3, 10),)


class ThreeDimensional(_Dimensional):
    """Convolutions over volumes."""

    dims = 3

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(2, 3, 4, 5, 6),)


class Pools(Toy):
    """Maximum, average and adaptive pools."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 5), norm(2, 5)
        self.head = conv(2, 5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = F.avg_pool2d(torch.relu(self.bn2(self.conv2(x))), 3, stride=1, padding=1)
        return self.head(F.adaptive_max_pool2d(x, 2))


class PaddedPool(Toy):
    """A maximum over what is padded with the least of all numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv3(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(torch.relu(self.bn1(self.conv1(x))), (0, 1, 0, 1), value=-torch.inf)
        return self.head(F.max_pool2d(x, 3, stride=2))


class Upsampled(Toy):
    """Nearest neighbours, by a scale factor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv3(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(F.interpolate(x, scale_factor=2, mode="nearest"))


class Dropout(Toy):
    """Dropout of values and of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.dropout, self.dropout2d = cast(Layer, nn.Dropout(0.3)), cast(Layer, nn.Dropout2d(0.3))
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(self.dropout2d(self.dropout(x)))


class NormWithoutAffine(Toy):
    """A batch norm without scaling factors between two with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 5), norm(2, 5, affine=False)
        self.conv3, self.bn3 = conv3(5, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.head(torch.relu(self.bn3(self.conv3(x))))


class ChannelsLast(Toy):
    """A linear layer on the channels, moved to the end and back."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.linear = linear(6, 5)
        self.head = conv(2, 5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(self.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
