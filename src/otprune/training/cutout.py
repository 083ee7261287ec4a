"""Cutout (DeVries and Taylor, 2017): a square of each training image is blanked, to rely on no part alone."""

import torch
from torch import Tensor

from otprune.training.data.seeds import generator
from otprune.training.data.share import WHOLE, Share

CHUNK = 8192  # images at a time, to bound the memory for what is blanked
PURPOSE = 1  # of the random numbers, so that crops and mirrorings are drawn as without


def cut_out(
    pixels: Tensor, side: int, mean: Tensor, seed: int, epoch: int, step: int = 0, share: Share = WHOLE
) -> None:
    """Set a square of each image to the mean colour, in place; its centre is any pixel, so it may hang over the edge.

    Pixels are uint8, or floating point as `mean` is. The squares follow from the seed, the epoch and the step alone; a
    share of a batch gets those that it has in the whole batch.

    >>> pixels = torch.ones(2, 1, 3, 3)
    >>> cut_out(pixels, 1, torch.zeros(1), seed=0, epoch=0)
    >>> pixels.flatten(1).sum(1)
    tensor([8., 8.])
    """
    height, width = pixels.shape[2:]
    random, whole = generator(seed, epoch, step, PURPOSE), len(pixels) * share.of
    centres = [torch.randint(size, (whole,), generator=random) for size in (height, width)]
    down, across = (centre[share.within(whole)] for centre in centres)
    colour = (mean if pixels.is_floating_point() else (255 * mean).round()).to(pixels).view(1, -1, 1, 1)
    for part, rows, columns in zip(pixels.split(CHUNK), down.split(CHUNK), across.split(CHUNK), strict=True):
        blank = _within(rows, side, height)[:, None, :, None] & _within(columns, side, width)[:, None, None, :]
        torch.where(blank.to(pixels.device), colour, part, out=part)


def _within(centres: Tensor, side: int, size: int) -> Tensor:
    """For each centre, which of so many places in a row belong to its square."""
    offset = torch.arange(size) - (centres - side // 2)[:, None]
    return (offset >= 0) & (offset < side)
