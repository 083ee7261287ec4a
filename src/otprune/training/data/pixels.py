"""From pixels as they are kept to the numbers that a network sees."""

from torch import Tensor


def normalized(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Pixels less the mean, over the deviation, in the precision of `mean`; those in uint8 are divided by 255 first.

    >>> import torch
    >>> mean, std = torch.tensor([0.5]), torch.tensor([0.5])
    >>> normalized(torch.full((1, 1, 1, 2), 255, dtype=torch.uint8), mean, std)
    tensor([[[[1., 1.]]]])
    >>> normalized(torch.zeros(1, 1, 1, 2), mean, std)
    tensor([[[[-1., -1.]]]])
    """
    values = pixels.to(mean.dtype) if pixels.is_floating_point() else pixels.to(mean.dtype) / 255
    return (values - mean.view(1, -1, 1, 1)) / std.view(1, -1, 1, 1)
