"""The small modules of random networks: one operator each, written the way users write them."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, linear, norm


class Conv(Layer):
    """A convolution alone."""

    def __init__(
        self,
        dims: int,
        cin: int,
        cout: int,
        kernel: int,
        stride: int,
        padding: int,
        dilation: int,
        groups: int,
        bias: bool,
    ) -> None:
        super().__init__()
        self.conv = conv(dims, cin, cout, kernel, stride, padding, dilation, groups, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class BatchNorm(Layer):
    """A batch norm alone, wherever it falls: on an input, on a concatenation, on a sum, at the end."""

    def __init__(self, dims: int, channels: int, affine: bool) -> None:
        super().__init__()
        self.bn = norm(dims, channels, affine)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x)


class Activation(Layer):
    """An activation alone."""

    def __init__(self, act: str) -> None:
        super().__init__()
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class PRelu(Layer):
    """An activation with a parameter per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.act = cast(Layer, nn.PReLU(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class Add(Layer):
    """Tensors of one shape, summed; the same tensor may come twice."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, first: Tensor, *others: Tensor) -> Tensor:
        if self.style == "stack":
            return torch.stack([first, *others]).sum(0)
        if self.style == "minus":
            return first - sum(others[1:], others[0])
        if self.style == "weighted":
            return torch.add(0.5 * first, sum(others[1:], others[0]), alpha=0.7)
        if self.style == "inplace":
            for other in others:
                first += other
            return first
        return sum(others, first)


class Multiply(Layer):
    """Two tensors of one shape, multiplied."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class Maximum(Layer):
    """Two tensors of one shape, the larger of each pair of values."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.maximum(x, y)


class Cat(Layer):
    """Tensors concatenated along the channels."""

    def forward(self, *tensors: Tensor) -> Tensor:
        return torch.cat(tensors, dim=1)


class Split(nn.Module):
    """Two halves of the channels, the size taken from the tensor itself."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        half = x.shape[1] // 2
        if self.style == "slice":
            return x[:, :half], x[:, half:]
        if self.style == "split":
            return tuple(torch.split(x, [half, x.shape[1] - half], dim=1))
        if self.style == "tensor_split":
            return tuple(x.tensor_split(2, dim=1))
        return tuple(x.chunk(2, 1))


class Interleave(nn.Module):
    """Every other channel: two strided slices."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, ::2], x[:, 1::2]


def shuffled(x: Tensor, groups: int) -> Tensor:
    """The channels of all groups, interleaved.

    >>> shuffled(torch.arange(4).reshape(1, 4, 1), 2).flatten().tolist()
    [0, 2, 1, 3]
    """
    n, c, *spatial = x.shape
    return x.view(n, groups, c // groups, *spatial).transpose(1, 2).reshape(n, c, *spatial)


class Shuffle(Layer):
    """Channel shuffle."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        return shuffled(x.contiguous(), self.groups)


POOLS: dict[str, tuple[str, tuple[int, ...]]] = {
    "max": ("MaxPool", (2,)),
    "avg": ("AvgPool", (2,)),
    "max_padded": ("MaxPool", (3, 1, 1)),
    "avg_padded": ("AvgPool", (3, 1, 1)),
    "adaptive_avg": ("AdaptiveAvgPool", (2,)),
    "adaptive_max": ("AdaptiveMaxPool", (2,)),
}


class Pool(Layer):
    """Pools of every sort, the channels left alone."""

    def __init__(self, dims: int, style: str) -> None:
        super().__init__()
        name, arguments = POOLS[style]
        self.pool: Layer = getattr(nn, f"{name}{dims}d")(*arguments)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x)


class Upsample(Layer):
    """Twice the size, by the nearest value."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.upsample = cast(Layer, nn.Upsample(scale_factor=2)) if style == "module" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.upsample is None:
            return F.interpolate(x, scale_factor=2, mode="nearest")
        return self.upsample(x)


class Dropout(Layer):
    """Dropout of values or of whole channels."""

    def __init__(self, dims: int, channelwise: bool) -> None:
        super().__init__()
        self.dropout: Layer = getattr(nn, f"Dropout{dims}d" if channelwise else "Dropout")(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x)


class LayerScale(Layer):
    """A learned factor per channel."""

    def __init__(self, dims: int, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, *[1] * dims))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Constant(Layer):
    """A constant added: a number, a buffer or a parameter with a value per channel."""

    def __init__(self, dims: int, channels: int, style: str) -> None:
        super().__init__()
        value = torch.ones(1, channels, *[1] * dims)
        if style == "parameter":
            self.offset: Tensor | float = nn.Parameter(value)
        elif style == "buffer":
            self.register_buffer("offset", value)
        else:
            self.offset = 0.7

    def forward(self, x: Tensor) -> Tensor:
        return x + self.offset


class ChannelReduction(Layer):
    """What looks at all channels at once: means, sums, maxima, softmax, centring."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, x: Tensor) -> Tensor:
        if self.style == "mean":
            return x.mean(dim=1, keepdim=True)
        if self.style == "sum":
            return x.sum(dim=1, keepdim=True)
        if self.style == "max":
            return x.max(dim=1, keepdim=True).values
        if self.style == "softmax":
            return torch.softmax(x, dim=1)
        return x - x.mean(dim=1, keepdim=True)


class ByChannelMean(Layer):
    """A tensor times the mean of its channels: one channel spread over all of them."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tanh(x.mean(dim=1, keepdim=True))


class Flatten(Layer):
    """Every value a feature: channels × height × width of them."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, x: Tensor) -> Tensor:
        if self.style == "view":
            return x.contiguous().view(x.shape[0], -1)
        if self.style == "reshape":
            return x.reshape(x.size(0), -1)
        return x.flatten(1)


class GlobalPool(Layer):
    """One feature a channel."""

    def __init__(self, dims: int, style: str) -> None:
        super().__init__()
        self.style = style
        self.axes = tuple(range(2, 2 + dims))
        self.pool: Layer = getattr(nn, f"AdaptiveAvgPool{dims}d")(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.style == "mean":
            return x.mean(self.axes)
        if self.style == "amax":
            return x.amax(self.axes)
        return torch.flatten(self.pool(x), 1)


class LinearBnAct(Layer):
    """A linear layer, with or without a batch norm behind it."""

    def __init__(self, cin: int, cout: int, bias: bool, bn: bool, act: str) -> None:
        super().__init__()
        self.linear = linear(cin, cout, bias)
        self.bn = norm(0, cout) if bn else None
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return self.act(x if self.bn is None else self.bn(x))


class ChannelsLast(Layer):
    """A linear layer at every place, the channels moved to the end and back."""

    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.linear = linear(cin, cout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.movedim(1, -1)).movedim(-1, 1)


class Pad(Layer):
    """Zeros around the edges, or as further channels."""

    def __init__(self, dims: int, style: str) -> None:
        super().__init__()
        self.widths = [1, 1] * dims if style == "edges" else [0, 0] * dims + [1, 1]

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.widths)


class Unusual(Layer):
    """Operators that no pruning tool expects between two convolutions."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style = style

    def forward(self, x: Tensor) -> Tensor:
        if self.style == "cumsum":
            return x.cumsum(1)
        if self.style == "roll":
            return torch.roll(x, 1, dims=1)
        if self.style == "flip":
            return x.flip(1)
        if self.style == "sort":
            return x.sort(dim=1).values
        if self.style == "group_norm":
            return F.group_norm(x, 1)
        return F.normalize(x, dim=1)


STEPS: dict[str, type[nn.Module]] = {
    "conv": Conv,
    "batch_norm": BatchNorm,
    "activation": Activation,
    "prelu": PRelu,
    "add": Add,
    "multiply": Multiply,
    "maximum": Maximum,
    "cat": Cat,
    "split": Split,
    "interleave": Interleave,
    "shuffle": Shuffle,
    "pool": Pool,
    "upsample": Upsample,
    "dropout": Dropout,
    "layer_scale": LayerScale,
    "constant": Constant,
    "channel_reduction": ChannelReduction,
    "by_channel_mean": ByChannelMean,
    "flatten": Flatten,
    "global_pool": GlobalPool,
    "linear": LinearBnAct,
    "channels_last": ChannelsLast,
    "pad": Pad,
    "unusual": Unusual,
}
