"""How well a model does on images it was not trained on."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from otprune.errors import DataError
from otprune.training.data.images import Part
from otprune.training.data.pixels import normalized

MOST_IMAGES, MOST_VALUES = 1000, 1 << 24  # in a batch, so that large images do not take all the memory


@torch.no_grad()
def accuracy(model: nn.Module, part: Part, mean: Tensor, std: Tensor) -> float:
    """The share of images classified rightly, in the model's own precision. Images that cannot be read do not count.

    >>> from otprune.training.data.images import Images
    >>> black = Images(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> accuracy(nn.Sequential(nn.Flatten(), nn.Linear(1, 2)), black, torch.zeros(1), torch.ones(1))
    0.5
    """
    first = next(model.parameters())
    mean, std = mean.to(first), std.to(first)
    hits = seen = 0
    with _evaluating(model):
        for pixels, labels in part.batches(_batch(part)):
            outputs = model(normalized(pixels.to(first.device, non_blocking=True), mean, std))
            hits += int((outputs.argmax(1) == labels.to(first.device)).sum())
            seen += len(labels)
    if seen == 0:
        raise DataError(f"not one of {len(part)} images to evaluate on can be read")
    return hits / seen


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, flag in modes:
            module.training = flag


def _batch(part: Part) -> int:
    return max(1, min(MOST_IMAGES, MOST_VALUES // math.prod(part.image_shape)))
