"""One small network a pattern, for tests that look at a single thing. All are made by `make` and always the same.

Batch norms are called `bn…`; the input is an image of three channels unless `example` says otherwise.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, linear, norm
from tests.net_steps import shuffled
from tests.random_nets import randomize


def values(*shape: int) -> Tensor:
    """Random values that are always the same.

    >>> torch.equal(values(2, 3), values(2, 3))
    True
    """
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Toy(Layer):
    """A network with an example of its inputs."""

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        """Positional inputs of the network."""
        return (values(2, 3, 8, 8),)


def make(toy: type[Toy], **options: str) -> Toy:
    """The network in float64 and eval mode, with weights that are always the same.

    >>> torch.equal(make(Sequential).conv1.weight, make(Sequential).conv1.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        model = toy(**options).double().eval()
    randomize(model, seed=0)
    return model


def conv3(cin: int, cout: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Layer:
    """A 3×3 convolution that keeps the size.

    >>> conv3(3, 6, stride=2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 6, 4, 4])
    """
    return conv(2, cin, cout, 3, stride=stride, padding=1, groups=groups, bias=bias)


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


class Depthwise(Toy):
    """A depthwise convolution between two pointwise ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.depthwise, self.bn2 = conv3(6, 6, groups=6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.depthwise(x))))


class DepthwiseMultiplier(Toy):
    """A depthwise convolution with two filters a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.depthwise, self.bn2 = conv3(6, 12, groups=6), norm(2, 12)
        self.head = conv(2, 12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(torch.relu(self.bn2(self.depthwise(x))))


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


class Chunk(Toy):
    """Two halves of the channels, each with its own reader."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3 = conv3(3, 4), conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        one, other = x.chunk(2, 1)
        return self.conv2(one) + self.conv3(other)


class Split(Toy):
    """Two halves of the channels, by the size of a half."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3 = conv3(3, 4), conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        one, other = torch.split(x, x.shape[1] // 2, dim=1)
        return self.conv2(one) + self.conv3(other)


class Slice(Toy):
    """Two halves of the channels, by slices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.conv2, self.conv3 = conv3(3, 4), conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        half = x.shape[1] // 2
        return self.conv2(x[:, :half]) + self.conv3(x[:, half:])


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

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.gate = conv(2, 6, 6, bias=True)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x * torch.sigmoid(self.gate(x)))


class SpatialGate(Toy):
    """A gate of one channel over all places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.gate = conv(2, 6, 1, bias=True)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x * torch.sigmoid(self.gate(x)))


class Glu(Toy):
    """One half of the channels gates the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = self.bn1(self.conv1(x)).chunk(2, dim=1)
        return self.head(x1 * torch.sigmoid(x2))


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


class OneDimensional(Toy):
    """Convolutions over sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(1, 3, 6, 3, padding=1), norm(1, 6)
        self.head = conv(1, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x))))

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(2, 3, 10),)


class ThreeDimensional(Toy):
    """Convolutions over volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, 3, 6, 3, padding=1), norm(3, 6)
        self.head = conv(3, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x))))

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(2, 3, 4, 5, 6),)


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


class CatWithInput(Toy):
    """A normalized tensor beside the raw input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 9, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(image)))
        return self.head(torch.cat([x, image], dim=1))


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


class UnknownOperator(Toy):
    """An operator that mixes channels in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head = conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x.cumsum(dim=1))


TOYS: dict[str, type[Toy]] = {
    toy.__name__: toy
    for toy in (
        Sequential,
        Activated,
        ConvOptions,
        ResidualIdentity,
        ResidualProjection,
        ResidualBranches,
        SumWithBareConv,
        AddedToItself,
        InPlace,
        PreActivation,
        Dense,
        TwoReaders,
        Depthwise,
        DepthwiseMultiplier,
        Grouped,
        Chunk,
        Split,
        Slice,
        Shuffle,
        SqueezeExcite,
        SigmoidGate,
        SpatialGate,
        Glu,
        FlattenIntoLinear,
        PoolIntoLinear,
        Linears,
        Transposed,
        OneDimensional,
        ThreeDimensional,
        SharedConv,
        SharedConvAndNorm,
        SharedTowers,
        TwoInputs,
        TupleOutputs,
        DictOutputs,
        AuxiliaryHead,
        Pools,
        Upsampled,
        Dropout,
        LayerScale,
        ConstantAdded,
        ChannelMean,
        ChannelMax,
        ChannelSoftmax,
        NormWithoutAffine,
        NormOnInput,
        NormIsOutput,
        CatWithInput,
        ChannelsLast,
        UnknownOperator,
    )
}
