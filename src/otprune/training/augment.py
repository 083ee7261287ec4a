"""Random order, crops and mirrorings of a whole epoch at once, on whatever device the images are."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad as padded

from otprune.training.data.seeds import generator

CHUNK = 8192  # images cropped at a time: enough to fill a GPU, few enough to bound the memory for padded copies


class Choices(NamedTuple):
    """What chance decides about an epoch: which image comes when, where its crop starts, whether it is mirrored."""

    order: Tensor
    top: Tensor
    left: Tensor
    mirrored: Tensor


def augmented_epoch(pixels: Tensor, labels: Tensor, epoch: int, seed: int, pad: int = 4) -> tuple[Tensor, Tensor]:
    """All images once, in random order, each a random crop of itself padded with black, half of them mirrored.

    The result follows from the seed and the epoch alone, the same on every device.

    >>> pixels = torch.arange(8, dtype=torch.uint8).view(2, 1, 2, 2)
    >>> labels = torch.tensor([0, 1])
    >>> once, again = (augmented_epoch(pixels, labels, epoch=3, seed=0, pad=1) for _ in range(2))
    >>> once[0].shape, torch.equal(once[0], again[0]), sorted(once[1].tolist())
    (torch.Size([2, 1, 2, 2]), True, [0, 1])
    """
    choices = Choices(*(choice.to(pixels.device) for choice in choose(len(pixels), epoch, seed, pad)))
    out = torch.empty_like(pixels, memory_format=torch.contiguous_format)
    for start in range(0, len(pixels), CHUNK):
        part = Choices(*(choice[start : start + CHUNK] for choice in choices))
        out[start : start + CHUNK] = _augmented(pixels[part.order], part, pad)
    return out, labels[choices.order.to(labels.device)]


def choose(count: int, epoch: int, seed: int, pad: int) -> Choices:
    """Draw an epoch's choices. They are drawn on the CPU, because a GPU's generator gives other numbers.

    >>> choose(3, epoch=0, seed=0, pad=4).order.sort().values
    tensor([0, 1, 2])
    """
    random = generator(seed, epoch)
    order = torch.randperm(count, generator=random)
    top, left = torch.randint(2 * pad + 1, (2, count), generator=random)
    mirrored = torch.randint(2, (count,), generator=random).bool()
    return Choices(order, top, left, mirrored)


def _augmented(pixels: Tensor, choices: Choices, pad: int) -> Tensor:
    height, width = pixels.shape[2:]
    # Every possible crop of every image, as a view: choosing among them copies whole rows.
    crops = padded(pixels, [pad] * 4).unfold(2, height, 1).unfold(3, width, 1)
    images = torch.arange(len(pixels), device=pixels.device)
    chosen = crops[images, :, choices.top, choices.left]
    return torch.where(choices.mirrored.view(-1, 1, 1, 1), chosen.flip(3), chosen)
