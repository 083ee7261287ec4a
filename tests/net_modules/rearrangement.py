"""Channels taken apart, shuffled, or turned into places and back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm


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


class ShuffleUnit(Layer):
    """One half passes, the other is convolved; then all channels are shuffled."""

    def __init__(self, dims: int, channels: int, act: str) -> None:
        super().__init__()
        half = channels // 2
        self.conv1 = conv(dims, half, half, 1)
        self.bn1 = norm(dims, half)
        self.depthwise = conv(dims, half, half, 3, padding=1, groups=half)
        self.bn2 = norm(dims, half)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        passed, read = x.chunk(2, dim=1)
        made = self.bn2(self.depthwise(self.act(self.bn1(self.conv1(read)))))
        return shuffled(torch.cat((passed, made), dim=1), 2)


class PixelShuffle(Layer):
    """A convolution four of whose channels become the pixels of one."""

    def __init__(self, cin: int, cout: int, bn: bool, style: str) -> None:
        super().__init__()
        self.conv = conv(2, cin, 4 * cout, 3, padding=1, bias=not bn)
        self.bn = norm(2, 4 * cout) if bn else None
        self.shuffle = nn.PixelShuffle(2) if style == "module" else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x if self.bn is None else self.bn(x)
        found: Tensor = F.pixel_shuffle(x, 2) if self.shuffle is None else self.shuffle(x)
        return found


class PixelUnshuffle(Layer):
    """Four pixels of a channel become channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(x, 2)


MODULES: dict[str, type[nn.Module]] = {
    "split": Split,
    "interleave": Interleave,
    "shuffle": Shuffle,
    "shuffle_unit": ShuffleUnit,
    "pixel_shuffle": PixelShuffle,
    "pixel_unshuffle": PixelUnshuffle,
}
