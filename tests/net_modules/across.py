"""Operators that look at all channels at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer


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


MODULES: dict[str, type[nn.Module]] = {
    "channel_reduction": ChannelReduction,
    "by_channel_mean": ByChannelMean,
    "unusual": Unusual,
}
