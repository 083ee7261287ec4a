"""Images that fit into memory, with their labels, and parts of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from otprune.errors import DataError
from otprune.training.data.seeds import generator


class Part(Protocol):
    """Images to evaluate a model on, wherever they are: all of a dataset's test images, or some that were held out."""

    @property
    def image_shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels as uint8 (images, channels, height, width) and one label as int64 for each image.

    >>> len(Images(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])))
    2
    """

    pixels: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.dim() != 4:
            raise DataError(
                f"pixels must be uint8 of shape (images, channels, height, width), not {self.pixels.dtype} of shape "
                f"{tuple(self.pixels.shape)}. For pixels in [0, 1]: (255 * pixels).round().to(torch.uint8)."
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.pixels.shape[:1]:
            raise DataError(
                f"labels must be int64, one for each of the {len(self.pixels)} images, not {self.labels.dtype} of "
                f"shape {tuple(self.labels.shape)}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: Tensor) -> "Images":
        """The images at these places, or those that a mask marks."""
        chosen = chosen.to(self.pixels.device)
        return Images(self.pixels[chosen], self.labels[chosen])

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width."""
        return tuple(self.pixels.shape[1:])

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pixels and labels, in order, the last ones perhaps fewer."""
        return zip(self.pixels.split(size), self.labels.split(size), strict=True)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images to train on and images to test on; `mean` and `std` are those of the training pixels in [0, 1].

    >>> black, white = torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)
    >>> both = Images(torch.cat([black, white]), torch.tensor([0, 1]))
    >>> data = Dataset.of(both, both, ("black", "white"))
    >>> data.mean, data.std
    (tensor([0.5000]), tensor([0.5000]))
    """

    train: Images
    test: Images
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor
    preparation: str = "pixels divided by 255"

    def __post_init__(self) -> None:
        for name, images in (("training", self.train), ("test", self.test)):
            if not len(images):
                raise DataError(f"there is not one {name} image")
            lowest, highest = images.labels.aminmax()
            if lowest < 0 or highest >= len(self.classes):
                outside = (images.labels < 0) | (images.labels >= len(self.classes))
                first = int(outside.nonzero()[0])
                raise DataError(
                    f"{int(outside.sum())} of {len(images)} {name} labels are out of range, the first one that of "
                    f"image {first}: {int(images.labels[first])}. With {len(self.classes)} classes, they go from 0 "
                    f"to {len(self.classes) - 1}."
                )

    @classmethod
    def of(cls, train: Images, test: Images, classes: tuple[str, ...]) -> "Dataset":
        """A dataset whose mean and deviation are measured on its training images."""
        mean, std = _mean_and_std(train.pixels)
        return cls(train, test, classes, mean, std)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return self.test.image_shape

    def held_out(self, fraction: float, seed: int) -> tuple["Dataset", Images]:
        """The same with less to train on, and the rest: a fraction of each class, to choose by instead of the test."""
        rest, held = split_off(self.train, fraction, seed)
        return replace(self, train=rest), held


def split_off(images: Images, fraction: float, seed: int) -> tuple[Images, Images]:
    """What is left to train on, and a fraction of each class held out, to choose by without a look at the test images.

    >>> images = Images(torch.zeros(8, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    >>> rest, held_out = split_off(images, 0.25, seed=0)
    >>> rest.labels, held_out.labels
    (tensor([0, 0, 0, 1, 1, 1]), tensor([0, 1]))
    """
    held = held_out(images.labels, fraction, seed)
    return images[~held], images[held]


def held_out(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """A mask of what to hold out: the same fraction of each class, chosen at random.

    >>> held_out(torch.tensor([0, 0, 1, 1]), 0.5, seed=0).view(2, 2).sum(1)
    tensor([1, 1])
    """
    if not 0 < fraction < 1:
        raise DataError(f"a fraction of {fraction} cannot be held out: it must lie between 0 and 1")
    labels = labels.cpu()
    shuffled = torch.randperm(len(labels), generator=generator(seed))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    sizes = labels.bincount()
    starts = sizes.cumsum(0) - sizes
    rank = torch.arange(len(labels)) - starts[labels[by_class]]
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[by_class] = rank < (fraction * sizes).round()[labels[by_class]]
    if held.all() or not held.any():
        raise DataError(
            f"holding out {fraction:g} of each class leaves {int((~held).sum())} of {len(labels)} images to train on: "
            "choose another fraction"
        )
    return held


def _mean_and_std(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Exact, from how often each of the 256 values occurs: no copy of the pixels in floating point."""
    values = torch.arange(256, dtype=torch.float64) / 255
    channels = pixels.transpose(0, 1).flatten(1)
    counts = torch.stack([channel.bincount(minlength=256) for channel in channels]).cpu()
    shares = counts.double() / channels.shape[1]
    mean = shares @ values
    std = (shares @ values.square() - mean.square()).clamp(min=0).sqrt()
    # A channel of one value has nothing to scale; dividing by zero would make it NaN.
    return mean.float(), torch.where(counts.count_nonzero(1) > 1, std, 1).float()
