"""Channels scaled, gated and shifted."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import conv, norm
from tests.toys.base import Toy, conv3


class SqueezeExcite(Toy):
    """A gate per channel from the means of all channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.reduce, self.bn2 = conv(2, 6, 4, bias=True), norm(2, 4)
        self.expand = conv(2, 4, 6, bias=True)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        gate = torch.relu(self.bn2(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return self.head(x * torch.sigmoid(self.expand(gate)))


class SigmoidGate(Toy):
    """A gate per channel and place by a 1×1 convolution."""

    gates = 6

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.gate = conv(2, 6, self.gates, bias=True)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x * torch.sigmoid(self.gate(x)))


class SpatialGate(SigmoidGate):
    """A gate of one channel over all places."""

    gates = 1


class Glu(Toy):
    """One half of the channels gates the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = self.bn1(self.conv1(x)).chunk(2, dim=1)
        return self.head(x1 * torch.sigmoid(x2))


class LayerScale(Toy):
    """A learned factor per channel behind a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.scale = nn.Parameter(torch.ones(6, 1, 1))
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x)) * self.scale))


class ConstantAdded(Toy):
    """A learned constant and a number added to every channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.offset = nn.Parameter(torch.ones(1, 6, 1, 1))
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x))) + self.offset + 0.5)


class DepthwiseGate(Toy):
    """A gate behind a depthwise convolution: what becomes of a channel of zeros there is no constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.depthwise, self.bn2 = conv3(6, 6, groups=6), norm(2, 6)
        self.squeeze, self.excite = conv(2, 6, 2, bias=True), conv(2, 2, 6, bias=True)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = F.silu(self.bn2(self.depthwise(x)))
        gate = self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True))))
        return self.head(x * torch.sigmoid(gate))


class Paths(Toy):
    """Two paths, weighed against each other channel by channel, and added."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.bn2 = conv(2, 3, 6), norm(2, 6)
        self.weigh = conv(2, 6, 12)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        paths = torch.stack([torch.relu(self.bn1(self.conv1(x))), torch.relu(self.bn2(self.conv2(x)))], dim=1)
        weights = self.weigh(paths.sum(1).mean((2, 3), keepdim=True))
        weights = weights.view(len(x), 2, weights.shape[1] // 2, 1, 1).softmax(1)
        return self.head((paths * weights).sum(dim=1))
