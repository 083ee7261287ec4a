"""Any torch Dataset to train on; what it does to its images is its own affair."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from otprune.errors import DataError
from otprune.training.data.images import held_out
from otprune.training.data.items import Items
from otprune.training.data.share import WHOLE, Share
from otprune.training.data.stream import Batches, StreamedPart

Numbers = Tensor | Sequence[float]


@dataclass(frozen=True, eq=False)
class StreamedDataset:
    """Data that is read while it is used. `plain` are the images of `train` without what chance does to those.

    >>> from torch.utils.data import TensorDataset
    >>> own = TensorDataset(torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> data = StreamedDataset.of(own, own, ("even", "odd"), workers=0)
    >>> data.image_shape, [len(labels) for _, labels in data.test.batches(4)]
    ((3, 8, 8), [4, 2])
    """

    train: StreamedPart
    plain: StreamedPart
    test: StreamedPart
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor

    @classmethod
    def of(
        cls,
        train: TorchDataset[Any],
        test: TorchDataset[Any],
        classes: Sequence[str],
        mean: Numbers | None = None,
        std: Numbers | None = None,
        plain: TorchDataset[Any] | None = None,
        workers: int | None = None,
    ) -> "StreamedDataset":
        """Wrap map-style torch Datasets of (image, label).

        An image is a PIL image, or a tensor (channels, height, width) of uint8 or of floating point. Floating point is
        taken as it is, uint8 is divided by 255. Then `mean` is subtracted, and `std` divides; without them nothing
        is, as it should be where the Dataset normalizes by itself.

        `plain` is `train` without augmentation, the same images in the same order. What is held out is taken from it,
        and trained on where the training is not to augment; without it, both come as `train` gives them.

        Images are read by `workers` processes, by default one for each core. Before each one, the random numbers of
        torch, NumPy and Python are seeded for that image and epoch.
        """

        def part(data: TorchDataset[Any], name: str) -> StreamedPart:
            return StreamedPart(Items.of(data, name, len(classes)), workers)

        trained, tested = part(train, "training"), part(test, "test")
        untouched = trained if plain is None else part(plain, "plain training")
        channels = tested.image_shape[0]
        mean, std = _per_channel("mean", mean, 0.0, channels), _per_channel("std", std, 1.0, channels)
        return cls(trained, untouched, tested, tuple(classes), mean, std)

    def __post_init__(self) -> None:
        if len(self.plain) != len(self.train):
            raise DataError(f"`plain` has {len(self.plain)} images, `train` {len(self.train)}: they must be the same")
        if not bool((self.std > 0).all()):
            raise DataError(f"std must be positive, not {self.std.tolist()}")

    @property
    def preparation(self) -> str:
        """What is done to an image, in words."""
        return "as the Dataset gives it, uint8 divided by 255"

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of a test image."""
        return self.test.image_shape

    @property
    def unreadable(self) -> dict[Path, str]:
        """Why which files could not be read."""
        return self.train.unreadable

    def batches(self, size: int, seed: int, augment: bool = True, share: Share = WHOLE) -> Batches:
        """What to train on, epoch by epoch."""
        return (self.train if augment else self.plain).shuffled(size, seed, share)

    def held_out(self, fraction: float, seed: int) -> tuple["StreamedDataset", StreamedPart]:
        """The same with less to train on, and the rest, to choose by instead of the test: a fraction of each class.

        Which class an image is of is known for folders; of a torch Dataset, a fraction of all images is held out.
        """
        held = held_out(self.train.source.labels, fraction, seed)
        train, plain = self.train[~held], self.plain[~held]
        return StreamedDataset(train, plain, self.test, self.classes, self.mean, self.std), self.plain[held]


def _per_channel(name: str, numbers: Numbers | None, default: float, channels: int) -> Tensor:
    if numbers is None:
        return torch.full((channels,), default)
    found = torch.as_tensor(numbers, dtype=torch.float32)
    if found.shape != (channels,) or not bool(found.isfinite().all()):
        raise DataError(f"{name} must be {channels} numbers, one for each channel, not {found.tolist()}")
    return found
