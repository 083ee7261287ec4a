"""Residual blocks of every sort."""

from __future__ import annotations

from torch import Tensor, nn

from tests.net_layers import Layer, activation, conv, norm
from tests.net_modules.gates import SqueezeExcite


class Branch(Layer):
    """Two convolutions with batch norms, the second one optional."""

    def __init__(self, dims: int, cin: int, mid: int, cout: int, stride: int, last_bn: bool, act: str) -> None:
        super().__init__()
        self.conv1 = conv(dims, cin, mid, 3, stride=stride, padding=1)
        self.bn1 = norm(dims, mid)
        self.act = activation(act)
        self.conv2 = conv(dims, mid, cout, 3, padding=1, bias=not last_bn)
        self.bn2 = norm(dims, cout) if last_bn else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(self.act(self.bn1(self.conv1(x))))
        return x if self.bn2 is None else self.bn2(x)


class Residual(Layer):
    """Post-activation: branches and a shortcut summed, then the activation."""

    def __init__(
        self,
        dims: int,
        cin: int,
        mid: int,
        cout: int,
        stride: int,
        branches: int,
        last_bn: bool,
        projection: bool,
        act: str,
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Branch(dims, cin, mid, cout, stride, last_bn, act) for _ in range(branches))
        self.project = conv(dims, cin, cout, 1, stride=stride) if projection else None
        self.bn_project = norm(dims, cout) if projection else None
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        out = self.shortcut(x)
        for branch in self.branches:
            out = out + branch(x)
        return self.act(out)

    def shortcut(self, x: Tensor) -> Tensor:
        if self.project is None or self.bn_project is None:
            return x
        return self.bn_project(self.project(x))


class Bottleneck(Layer):
    """Narrow, wide, narrow, with the sum written in place as most code bases do."""

    def __init__(self, dims: int, channels: int, mid: int) -> None:
        super().__init__()
        self.conv1 = conv(dims, channels, mid, 1)
        self.bn1 = norm(dims, mid)
        self.conv2 = conv(dims, mid, mid, 3, padding=1)
        self.bn2 = norm(dims, mid)
        self.conv3 = conv(dims, mid, channels, 1)
        self.bn3 = norm(dims, channels)
        self.relu = activation("relu_inplace")

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class PreResidual(Layer):
    """Pre-activation: batch norms before convolutions, the sum left as it is."""

    def __init__(self, dims: int, cin: int, mid: int, cout: int, stride: int, projection: bool, act: str) -> None:
        super().__init__()
        self.bn1 = norm(dims, cin)
        self.conv1 = conv(dims, cin, mid, 3, stride=stride, padding=1)
        self.bn2 = norm(dims, mid)
        self.conv2 = conv(dims, mid, cout, 3, padding=1)
        self.act = activation(act)
        self.project = conv(dims, cin, cout, 1, stride=stride) if projection else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.act(self.bn1(x))
        out = self.conv2(self.act(self.bn2(self.conv1(active))))
        return out + (x if self.project is None else self.project(active))


class InvertedResidual(Layer):
    """Expand, depthwise, squeeze and excite, project, and the identity added."""

    def __init__(self, dims: int, channels: int, mid: int, squeeze: bool, act: str) -> None:
        super().__init__()
        self.expand = conv(dims, channels, mid, 1)
        self.bn1 = norm(dims, mid)
        self.depthwise = conv(dims, mid, mid, 3, padding=1, groups=mid)
        self.bn2 = norm(dims, mid)
        self.squeeze = SqueezeExcite(dims, mid, 2, False, "hardsigmoid") if squeeze else None
        self.project = conv(dims, mid, channels, 1)
        self.bn3 = norm(dims, channels)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        out = self.act(self.bn1(self.expand(x)))
        out = self.act(self.bn2(self.depthwise(out)))
        if self.squeeze is not None:
            out = self.squeeze(out)
        return x + self.bn3(self.project(out))


MODULES: dict[str, type[nn.Module]] = {
    "residual": Residual,
    "bottleneck": Bottleneck,
    "pre_residual": PreResidual,
    "inverted_residual": InvertedResidual,
}
