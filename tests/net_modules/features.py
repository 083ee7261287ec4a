"""From places to features, and layers on features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.net_layers import Layer, activation, linear, norm


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


class AuxiliaryHead(Layer):
    """A classifier on the side, of spatial tensors or of features."""

    def __init__(self, cin: int, mid: int, classes: int) -> None:
        super().__init__()
        self.reduce = linear(cin, mid)
        self.bn = norm(0, mid)
        self.classify = linear(mid, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = x.flatten(2).mean(-1) if x.dim() > 2 else x
        return self.classify(torch.relu(self.bn(self.reduce(features))))


MODULES: dict[str, type[nn.Module]] = {
    "flatten": Flatten,
    "global_pool": GlobalPool,
    "linear": LinearBnAct,
    "channels_last": ChannelsLast,
    "auxiliary_head": AuxiliaryHead,
}
