"""Where a network begins and ends: several inputs, outputs of every sort, batch norms at either end."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.net_layers import conv, norm
from tests.toys.base import Toy, conv3, values


class TwoInputs(Toy):
    """Two inputs of different widths, summed behind their batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(2, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x)) + self.bn2(self.conv2(y))))

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(2, 3, 8, 8), values(2, 2, 8, 8))


class TupleOutputs(Toy):
    """Two outputs, the first of them also read on the way to the second."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 5), norm(2, 5)
        self.head = conv(2, 5, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.bn1(self.conv1(x)))
        return x, self.head(torch.relu(self.bn2(self.conv2(x))))


class DictOutputs(Toy):
    """Two outputs by name, the first of them also read on the way to the second."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 5), norm(2, 5)
        self.head = conv(2, 5, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = torch.relu(self.bn1(self.conv1(x)))
        return {"features": x, "out": self.head(torch.relu(self.bn2(self.conv2(x))))}


class AuxiliaryHead(Toy):
    """A second head that only train mode reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 5), norm(2, 5)
        self.auxiliary, self.bn_auxiliary = conv(2, 6, 4), norm(2, 4)
        self.head = conv(2, 5, 4)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = torch.relu(self.bn1(self.conv1(x)))
        out = self.head(torch.relu(self.bn2(self.conv2(x))))
        return (out, self.bn_auxiliary(self.auxiliary(x))) if self.training else out


class NormOnInput(Toy):
    """A batch norm directly on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.bn0, self.conv1, self.bn1 = norm(2, 3), conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(self.bn0(x)))))


class NormIsOutput(Toy):
    """A batch norm whose output is the network's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv3(6, 4), norm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))
