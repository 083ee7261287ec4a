"""Other heights and widths: pools, upsampling, padding."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from tests.net_layers import Layer

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


class Pad(Layer):
    """Zeros around the edges, or as further channels."""

    def __init__(self, dims: int, style: str) -> None:
        super().__init__()
        self.widths = [1, 1] * dims if style == "edges" else [0, 0] * dims + [1, 1]

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.widths)


MODULES: dict[str, type[nn.Module]] = {
    "pool": Pool,
    "upsample": Upsample,
    "pad": Pad,
}
