"""Dense blocks and the transitions between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm


class DenseLayer(Layer):
    """Batch norm, activation, convolution, twice where there is a bottleneck."""

    def __init__(self, dims: int, cin: int, growth: int, bottleneck: bool, act: str) -> None:
        super().__init__()
        mid = 2 * growth if bottleneck else cin
        self.bn1 = norm(dims, cin)
        self.act = activation(act)
        self.conv1 = conv(dims, cin, mid, 1) if bottleneck else None
        self.bn2 = norm(dims, mid) if bottleneck else None
        self.conv2 = conv(dims, mid, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn1(x))
        if self.conv1 is not None and self.bn2 is not None:
            x = self.act(self.bn2(self.conv1(x)))
        return self.conv2(x)


class Dense(Layer):
    """Every layer reads the concatenation of all before it."""

    def __init__(self, dims: int, cin: int, growth: int, layers: int, bottleneck: bool, act: str) -> None:
        super().__init__()
        widths = [cin + index * growth for index in range(layers)]
        self.layers = nn.ModuleList(DenseLayer(dims, width, growth, bottleneck, act) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


class Transition(Layer):
    """Batch norm, activation, 1×1 convolution and pool, between dense blocks."""

    def __init__(self, dims: int, cin: int, cout: int, act: str) -> None:
        super().__init__()
        self.bn = norm(dims, cin)
        self.act = activation(act)
        self.conv = conv(dims, cin, cout, 1)
        self.pool: Layer = getattr(nn, f"AvgPool{dims}d")(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(self.act(self.bn(x))))


MODULES: dict[str, type[nn.Module]] = {
    "dense": Dense,
    "transition": Transition,
}
