"""Folders of images too many for memory, such as ILSVRC-2012, read and augmented by other processes."""

import logging
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from otprune.errors import DataError
from otprune.training.data.folder_files import ImageFiles, find
from otprune.training.data.seeds import derived_seed, generator

SIDE, SHORT_SIDE = 224, 256
MOST_WORKERS = 16
BATCHES_AHEAD = 4  # that each worker prepares
MOST_REPLACEMENTS = 100
# What Pillow raises on files that are damaged, or no images at all.
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)

log = logging.getLogger(__name__)


class ImageFolderDataset:
    """A folder with train/ and val/, each with a folder for every class; ILSVRC-2012 as it unpacks is one too.

    An image that cannot be read is named in the log and listed in `unreadable`; with `strict` it is an error.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
    ...     (root / name).mkdir(parents=True)
    ...     Image.new("RGB", (300, 260)).save(root / name / "1.png")
    >>> data = ImageFolderDataset(root)
    >>> [(tuple(pixels.shape), labels.tolist()) for pixels, labels in data.val_batches(2, workers=0).epoch(0)]
    [((2, 3, 224, 224), [0, 1])]
    """

    def __init__(self, root: Path, strict: bool = False) -> None:
        self.train, self.val, self.classes = find(root)
        self.mean, self.std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])  # ILSVRC-2012
        self.strict = strict
        self.unreadable: dict[Path, str] = {}

    def train_batches(self, batch: int, seed: int, workers: int | None = None) -> "Batches":
        """Every image once an epoch, in random order, randomly cropped and mirrored; full batches only.

        For an image that cannot be read the next one stands in, so that batches stay full.
        """
        random = v2.RandomResizedCrop(SIDE, scale=(0.08, 1), ratio=(3 / 4, 4 / 3))
        transform = v2.Compose([random, v2.RandomHorizontalFlip(), v2.PILToTensor()])
        samples = _Samples(self.train, transform, seed, MOST_REPLACEMENTS)
        return Batches(self, samples, _Order(len(self.train), batch, seed), workers)

    def val_batches(self, batch: int, workers: int | None = None) -> "Batches":
        """The centre of every image that can be read, in the order of the files."""
        transform = v2.Compose([v2.Resize(SHORT_SIDE), v2.CenterCrop(SIDE), v2.PILToTensor()])
        samples = _Samples(self.val, transform, seed=0, replacements=0)
        return Batches(self, samples, _Order(len(self.val), batch, None), workers)

    def note(self, failures: dict[Path, str]) -> None:
        """Log images that could not be read, each of them once, or raise an error about them."""
        for path, reason in failures.items():
            if self.strict:
                raise DataError(f"{path} cannot be read: {reason}. Replace it, or do without `strict` to leave it out.")
            if path not in self.unreadable:
                self.unreadable[path] = reason
                log.warning("%s cannot be read (%s) and is left out, as number %d", path, reason, len(self.unreadable))


class Batches:
    """Batches of uint8 pixels and int64 labels, epoch by epoch.

    What an epoch brings follows from the seed and the epoch alone, not from the number of workers.
    """

    def __init__(self, data: ImageFolderDataset, samples: "_Samples", order: "_Order", workers: int | None) -> None:
        workers = min(os.cpu_count() or 1, MOST_WORKERS) if workers is None else workers
        self._data, self._order = data, order
        self._loader = DataLoader(
            samples,
            batch_sampler=order,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=BATCHES_AHEAD if workers else None,
            collate_fn=_collate,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # or else every epoch would advance the user's random numbers
        )

    def __len__(self) -> int:
        return len(self._order)

    def epoch(self, number: int, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch; a resumed run skips those it has had, without reading them."""
        self._order.epoch, self._order.skip = number, skip
        for batch in self._loader:
            self._data.note(batch.failures)
            if len(batch.labels):
                yield batch.pixels, batch.labels


class _Sample(NamedTuple):
    pixels: Tensor | None
    label: int
    failures: dict[Path, str]


class _Batch(NamedTuple):
    pixels: Tensor
    labels: Tensor
    failures: dict[Path, str]


class _Order(Sampler[list[tuple[int, int]]]):
    """Batches of (epoch, index): shuffled and all full with a seed, otherwise in order and the last one short."""

    def __init__(self, count: int, batch: int, seed: int | None) -> None:
        self.count, self.batch, self.seed = count, batch, seed
        self.epoch = self.skip = 0
        if len(self) == 0:
            raise DataError(f"{count} images do not fill one batch of {batch}: take a smaller one")

    def __len__(self) -> int:
        return self.count // self.batch if self.seed is not None else -(-self.count // self.batch)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        indices = list(range(self.count)) if self.seed is None else self._shuffled(self.seed)
        for start in range(self.skip * self.batch, len(self) * self.batch, self.batch):
            yield [(self.epoch, index) for index in indices[start : start + self.batch]]

    def _shuffled(self, seed: int) -> list[int]:
        order: list[int] = torch.randperm(self.count, generator=generator(seed, self.epoch)).tolist()
        return order


class _Samples(TorchDataset[_Sample]):
    """Images as tensors. Chance is seeded for each image, so it does not matter which worker gets it."""

    def __init__(
        self, files: ImageFiles, transform: Callable[[Image.Image], Tensor], seed: int, replacements: int
    ) -> None:
        self.files, self.transform, self.seed, self.replacements = files, transform, seed, replacements

    def __getitem__(self, key: tuple[int, int]) -> _Sample:
        epoch, index = key
        failures: dict[Path, str] = {}
        for candidate in range(index, index + 1 + self.replacements):
            chosen = candidate % len(self.files)
            path = self.files.path(chosen)
            try:
                with Image.open(path) as file:
                    image = file.convert("RGB")
            except UNREADABLE as error:
                failures[path] = str(error) or type(error).__name__
                continue
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(derived_seed(self.seed, epoch, index))
                return _Sample(self.transform(image), int(self.files.labels[chosen]), failures)
        return _Sample(None, int(self.files.labels[index]), failures)


def _collate(samples: list[_Sample]) -> _Batch:
    readable = [(sample.pixels, sample.label) for sample in samples if sample.pixels is not None]
    failures = {path: reason for sample in samples for path, reason in sample.failures.items()}
    pixels = [pixels for pixels, _ in readable]
    labels = torch.tensor([label for _, label in readable], dtype=torch.int64)
    return _Batch(torch.stack(pixels) if pixels else torch.empty(0), labels, failures)
