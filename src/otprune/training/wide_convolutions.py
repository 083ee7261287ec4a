"""Convolutions of any width for a GPU that is quick with some: pruned layers rarely have a multiple of eight channels.

Its matrix units read eight numbers of bf16 at once, and kernels for other widths are slower. So the weights lie in
wider tensors, with zeros beside them. Inputs become as wide in the kernel that writes them, which the compiler sees to,
and the channels too many of an output are passed over by those that read it.

What is computed is the same. Zeros beside a weight stay zeros: no update reaches them.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MULTIPLE = 8
LIKE_IMAGES = 4  # so few channels are quick to read as they are


class WideConv2d(nn.Conv2d):
    """A convolution whose weight is the first part of a parameter `wide`; `narrow` is the shape of that part.

    >>> net = nn.Sequential(nn.Conv2d(8, 5, 1))
    >>> _ = widen(net)
    >>> type(net[0]).__name__, net[0].wide.shape[0], net(torch.zeros(1, 8, 2, 2)).shape[1]
    ('WideConv2d', 8, 5)
    """

    wide: nn.Parameter
    narrow: torch.Size

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """What the convolution had as its weight."""
        return part_of(self.wide, self.narrow)

    def forward(self, input: Tensor) -> Tensor:
        """As that of the convolution it was."""
        read = _widened_by(self.wide.shape[1] - self.narrow[1], input)
        everything = F.conv2d(read, self.wide, None, self.stride, self.padding, self.dilation)
        written: Tensor = _First.apply(everything, self.narrow[0])
        return written if self.bias is None else written + self.bias.view(-1, 1, 1)


def widen(model: nn.Module) -> dict[int, nn.Parameter]:
    """Turn the convolutions of a model that gain from it into wide ones; by the ids of their weights, the wide weights.

    A weight that something else reads too stays as it is.

    >>> net = nn.Sequential(nn.Conv2d(3, 13, 3), nn.Conv2d(13, 16, 3), nn.Conv2d(16, 16, 3))
    >>> [tuple(wide.shape) for wide in widen(net).values()]
    [(16, 3, 3, 3), (16, 16, 3, 3)]
    >>> net[1].weight.shape
    torch.Size([16, 13, 3, 3])
    """
    candidates = [module for module in model.modules() if type(module) is nn.Conv2d and _gains(module)]
    read_by_them, held = Counter(id(module.weight) for module in candidates), _holders(model)
    found = [module for module in candidates if read_by_them[id(module.weight)] == held[id(module.weight)]]
    weights = {id(module.weight): module.weight for module in found}
    wide = {key: _widened(weight) for key, weight in weights.items()}
    for module in found:
        _become_wide(module, wide[id(module.weight)])
    return wide


def part_of(wide: Tensor, shape: torch.Size) -> Tensor:
    """The part of a wide tensor that has this shape: the tensor itself where that is all of it.

    >>> part_of(torch.ones(16, 8, 3, 3), torch.Size([13, 3, 3, 3])).shape
    torch.Size([13, 3, 3, 3])
    """
    return wide if wide.shape == shape else wide[: shape[0], : shape[1]]


class _First(torch.autograd.Function):
    """The first channels of images, with a gradient in their memory order, which that of a slice is not.

    Not a view of them, or they could not be changed in place. The compiler makes no copy of it.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, channels: int) -> Tensor:
        ctx.others = images.shape[-3] - channels
        return images.narrow(-3, 0, channels).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _widened_by(ctx.others, gradient), None


def _widened_by(channels: int, images: Tensor) -> Tensor:
    return F.pad(images, (0, 0, 0, 0, 0, channels)) if channels else images


def _holders(model: nn.Module) -> Counter[int]:
    """How many modules have each parameter, by its id."""
    return Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())


def _gains(convolution: nn.Conv2d) -> bool:
    if convolution._parameters.get("weight") is None:  # made of others, from call to call
        return False
    plain = convolution.groups == 1 and convolution.padding_mode == "zeros"
    return plain and _wide_shape(convolution.weight) != convolution.weight.shape[:2]


def _wide_shape(weight: Tensor) -> tuple[int, int]:
    written, read = weight.shape[:2]
    return _rounded(written), read if read <= LIKE_IMAGES else _rounded(read)


def _rounded(channels: int) -> int:
    return -(-channels // MULTIPLE) * MULTIPLE


def _widened(weight: Tensor) -> nn.Parameter:
    wide = weight.new_zeros(*_wide_shape(weight), *weight.shape[2:]).to(memory_format=torch.channels_last)
    part_of(wide, weight.shape).copy_(weight.detach())
    return nn.Parameter(wide, requires_grad=weight.requires_grad)


def _become_wide(convolution: nn.Conv2d, wide: nn.Parameter) -> None:
    """In place, so that whatever else is known of the module, or hooked to it, stays."""
    narrow = convolution.weight.shape
    del convolution.weight
    convolution.__class__ = WideConv2d
    assert isinstance(convolution, WideConv2d)
    convolution.wide, convolution.narrow = wide, narrow
