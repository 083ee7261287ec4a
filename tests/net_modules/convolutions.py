"""Convolutions: alone, with a batch norm, in groups, transposed."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from tests.net_layers import TRANSPOSED, Layer, activation, conv, norm


class Conv(Layer):
    """A convolution alone; it takes what `conv` does."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = conv(**options)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class ConvBnAct(Conv):
    """A convolution, a batch norm and an activation."""

    def __init__(self, affine: bool, act: str, **options: Any) -> None:
        super().__init__(**options)
        self.bn = norm(options["dims"], options["cout"], affine)
        self.act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


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


MODULES: dict[str, type[nn.Module]] = {
    "conv": Conv,
    "conv_bn_act": ConvBnAct,
    "depthwise_separable": DepthwiseSeparable,
    "transposed_conv": TransposedConv,
}
