"""The larger modules of random networks: the blocks that real architectures are made of."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import TRANSPOSED, Layer, activation, conv, linear, norm
from tests.net_steps import shuffled


class ConvBnAct(Layer):
    """A convolution, a batch norm and an activation."""

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
        affine: bool,
        act: str,
    ) -> None:
        super().__init__()
        self.conv = conv(dims, cin, cout, kernel, stride, padding, dilation, groups, bias)
        self.bn = norm(dims, cout, affine)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class NormAct(Layer):
    """A batch norm and an activation: what closes a pre-activation network."""

    def __init__(self, dims: int, channels: int, act: str) -> None:
        super().__init__()
        self.bn = norm(dims, channels)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(x))


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


class DepthwiseSeparable(Layer):
    """Depthwise, with one or several filters a channel, then pointwise."""

    def __init__(self, dims: int, cin: int, cout: int, multiplier: int, stride: int, act: str) -> None:
        super().__init__()
        mid = cin * multiplier
        self.depthwise = conv(dims, cin, mid, 3, stride=stride, padding=1, groups=cin)
        self.bn1 = norm(dims, mid)
        self.pointwise = conv(dims, mid, cout, 1)
        self.bn2 = norm(dims, cout)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn1(self.depthwise(x)))
        return self.act(self.bn2(self.pointwise(x)))


class SqueezeExcite(Layer):
    """A gate per channel, computed from the means of all channels by 1×1 convolutions."""

    def __init__(self, dims: int, channels: int, mid: int, bn: bool, gate: str) -> None:
        super().__init__()
        self.pool: Layer = getattr(nn, f"AdaptiveAvgPool{dims}d")(1)
        self.reduce = conv(dims, channels, mid, 1, bias=True)
        self.bn = norm(dims, mid) if bn else None
        self.relu = activation("relu")
        self.expand = conv(dims, mid, channels, 1, bias=True)
        self.gate = activation(gate)

    def forward(self, x: Tensor) -> Tensor:
        s = self.reduce(self.pool(x))
        s = self.relu(s if self.bn is None else self.bn(s))
        return x * self.gate(self.expand(s))


class SqueezeExciteLinear(Layer):
    """A gate per channel by linear layers, reshaped to the rank of the tensor."""

    def __init__(self, channels: int, mid: int, gate: str) -> None:
        super().__init__()
        self.reduce = linear(channels, mid)
        self.relu = activation("relu")
        self.expand = linear(mid, channels)
        self.gate = activation(gate)

    def forward(self, x: Tensor) -> Tensor:
        s = x.flatten(2).mean(-1)
        s = self.gate(self.expand(self.relu(self.reduce(s))))
        return x * s.view(x.shape[0], x.shape[1], *[1] * (x.dim() - 2))


class SpatialGate(Layer):
    """A gate of one channel over all places, from a convolution or from the mean and the maximum of the channels."""

    def __init__(self, dims: int, channels: int, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled
        self.conv = conv(dims, 2 if pooled else channels, 1, 3, padding=1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        read = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], dim=1) if self.pooled else x
        return x * torch.sigmoid(self.conv(read))


class ConvGate(Layer):
    """A gate per channel and place by a 1×1 convolution."""

    def __init__(self, dims: int, channels: int, bn: bool) -> None:
        super().__init__()
        self.conv = conv(dims, channels, channels, 1, bias=True)
        self.bn = norm(dims, channels) if bn else None

    def forward(self, x: Tensor) -> Tensor:
        gate = self.conv(x)
        return x * torch.sigmoid(gate if self.bn is None else self.bn(gate))


class Glu(Layer):
    """One half of the channels gates the other half."""

    def __init__(self, functional: bool) -> None:
        super().__init__()
        self.functional = functional

    def forward(self, x: Tensor) -> Tensor:
        if self.functional:
            return F.glu(x, dim=1)
        x1, x2 = x.chunk(2, dim=1)
        return x1 * torch.sigmoid(x2)


class Modulate(Layer):
    """Features of one tensor scale the channels of another."""

    def __init__(self, features: int, channels: int) -> None:
        super().__init__()
        self.linear = linear(features, channels)

    def forward(self, x: Tensor, features: Tensor) -> Tensor:
        scale = torch.tanh(self.linear(features))
        return x * scale[(..., *[None] * (x.dim() - 2))]


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


class TransposedConv(Layer):
    """A transposed convolution, with or without a batch norm."""

    def __init__(
        self,
        dims: int,
        cin: int,
        cout: int,
        kernel: int,
        stride: int,
        padding: int,
        output_padding: int,
        groups: int,
        bias: bool,
        bn: bool,
        act: str,
    ) -> None:
        super().__init__()
        self.conv = cast(Layer, TRANSPOSED[dims](cin, cout, kernel, stride, padding, output_padding, groups, bias))
        self.bn = norm(dims, cout) if bn else None
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.act(x if self.bn is None else self.bn(x))


class SharedInARow(Layer):
    """The same convolution twice in a row, its batch norm shared, separate or absent."""

    def __init__(self, dims: int, channels: int, bn: str, act: str) -> None:
        super().__init__()
        self.conv = conv(dims, channels, channels, 3, padding=1)
        self.bn1 = norm(dims, channels) if bn != "none" else nn.Identity()
        self.bn2 = norm(dims, channels) if bn == "separate" else self.bn1
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn1(self.conv(x)))
        return self.act(self.bn2(self.conv(x)))


class SharedTowers(Layer):
    """The same convolution and batch norm on two tensors, one after the other; the results summed or side by side."""

    def __init__(self, dims: int, cin: int, cout: int, bn: bool, join: str) -> None:
        super().__init__()
        self.conv = conv(dims, cin, cout, 3, padding=1)
        self.bn = norm(dims, cout) if bn else None
        self.join = join

    def tower(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return torch.relu(x if self.bn is None else self.bn(x))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.join == "sum":
            return self.tower(x) + self.tower(y)
        return torch.cat([self.tower(x), self.tower(y)], dim=1)


class Join(Layer):
    """Tensors of one size and any width, each through its own 1×1 convolution, some with a batch norm, summed."""

    def __init__(self, dims: int, widths: tuple[int, ...], cout: int, bns: tuple[int, ...], act: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(dims, width, cout, 1, bias=True) for width in widths)
        self.bns = nn.ModuleList(norm(dims, cout) if bn else nn.Identity() for bn in bns)
        self.act = activation(act)

    def forward(self, *tensors: Tensor) -> Tensor:
        parts = [bn(conv(x)) for x, conv, bn in zip(tensors, self.convs, self.bns, strict=True)]
        return self.act(sum(parts[1:], parts[0]))


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


BLOCKS: dict[str, type[nn.Module]] = {
    "conv_bn_act": ConvBnAct,
    "norm_act": NormAct,
    "residual": Residual,
    "bottleneck": Bottleneck,
    "pre_residual": PreResidual,
    "dense": Dense,
    "transition": Transition,
    "depthwise_separable": DepthwiseSeparable,
    "squeeze_excite": SqueezeExcite,
    "squeeze_excite_linear": SqueezeExciteLinear,
    "spatial_gate": SpatialGate,
    "conv_gate": ConvGate,
    "glu": Glu,
    "modulate": Modulate,
    "inverted_residual": InvertedResidual,
    "shuffle_unit": ShuffleUnit,
    "transposed_conv": TransposedConv,
    "shared_in_a_row": SharedInARow,
    "shared_towers": SharedTowers,
    "join": Join,
    "auxiliary_head": AuxiliaryHead,
}
