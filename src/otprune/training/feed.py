"""Where a run's batches come from: whole epochs in memory, or a stream of batches."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from otprune.errors import TrainingError
from otprune.training.augment import augmented_epoch
from otprune.training.cutout import cut_out
from otprune.training.data import AnyDataset, Dataset, StreamedDataset
from otprune.training.data.pixels import normalized
from otprune.training.data.seeds import generator
from otprune.training.data.share import WHOLE, Share

if TYPE_CHECKING:
    from otprune.training.run import Training

CALIBRATION_BATCH = 500


class Chunk(NamedTuple):
    """The images of one step or of many, the first `done` of which are behind."""

    pixels: Tensor
    labels: Tensor
    done: int


class Feed(Protocol):
    """A run's images: `steps` batches an epoch, in chunks."""

    @property
    def steps(self) -> int: ...

    def chunks(self, epoch: int, done: int) -> Iterator[Chunk]:
        """The images of an epoch whose first `done` steps are behind; they follow from the seed and the epoch alone."""


def feed(data: AnyDataset, training: "Training", device: torch.device, share: Share = WHOLE) -> Feed:
    """The images that a training takes from its data: of every batch, a share.

    >>> from otprune.training.data import Images
    >>> from otprune.training.run import Training
    >>> images = Images(torch.zeros(6, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> fed = feed(Dataset.of(images, images, ("even", "odd")), Training(batch=2), torch.device("cpu"))
    >>> fed.steps, [(len(chunk.labels), chunk.done) for chunk in fed.chunks(epoch=0, done=1)]
    (3, [(6, 1)])
    """
    if not isinstance(data, Dataset | StreamedDataset):
        raise TrainingError(
            f"a {type(data).__name__} is not data to train on: wrap it with StreamedDataset.of(train, test, classes)"
        )
    _require_room_for_cutout(data, training)
    return _InMemory(data, training, device, share) if isinstance(data, Dataset) else _Streamed(data, training, share)


def calibration(data: AnyDataset, training: "Training", images: int) -> Iterator[Tensor]:
    """About so many training images, normalized, in batches: as in training, but in a draw that none of its epochs had.

    >>> from otprune.training.data import Images
    >>> from otprune.training.run import Training
    >>> images = Images(torch.zeros(6, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> [len(batch) for batch in calibration(Dataset.of(images, images, ("even", "odd")), Training(), images=4)]
    [4]
    """
    if isinstance(data, Dataset):
        pixels, _ = epoch_images(data.train.pixels, data.train.labels, data.mean, training, training.epochs)
        batches = iter(pixels[:images].split(CALIBRATION_BATCH))
    else:
        stream = _Streamed(data, training).chunks(training.epochs, done=0)
        batches = (chunk.pixels for chunk in islice(stream, -(-images // training.batch)))
    return (normalized(pixels.cpu(), data.mean, data.std) for pixels in batches)


def epoch_images(
    pixels: Tensor, labels: Tensor, mean: Tensor, training: "Training", epoch: int
) -> tuple[Tensor, Tensor]:
    """An epoch's images in its own order, cropped, mirrored and with a square cut out if the training says so.

    >>> from otprune.training.run import Training
    >>> pixels, labels = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 2])
    >>> epoch_images(pixels, labels, torch.zeros(1), Training(augment=False), epoch=0)[1].sort().values
    tensor([0, 1, 2])
    """
    if not training.augment:
        order = torch.randperm(len(labels), generator=generator(training.seed, epoch))
        return pixels[order.to(pixels.device)], labels[order.to(labels.device)]
    pixels, labels = augmented_epoch(pixels, labels, epoch, training.seed)
    if training.cutout:
        cut_out(pixels, training.cutout, mean, training.seed, epoch)
    return pixels, labels


class _InMemory:
    """Each epoch is one chunk, made on the device."""

    def __init__(self, data: Dataset, training: "Training", device: torch.device, share: Share) -> None:
        self.pixels, self.labels = data.train.pixels.to(device), data.train.labels.to(device)
        self.mean, self.training, self.share = data.mean, training, share
        self.steps = len(data.train) // training.batch  # what does not fill a batch waits for the next epoch
        if self.steps == 0:
            raise TrainingError(
                f"{len(data.train)} images do not fill one batch of {training.batch}: take a smaller one, with --batch"
            )

    def chunks(self, epoch: int, done: int) -> Iterator[Chunk]:
        images = epoch_images(self.pixels, self.labels, self.mean, self.training, epoch)
        pixels, labels = (self.share.of_batches(tensor, self.training.batch) for tensor in images)
        yield Chunk(pixels, labels, done)


class _Streamed:
    """Each batch is a chunk, read by other processes."""

    def __init__(self, data: StreamedDataset, training: "Training", share: Share = WHOLE) -> None:
        self.batches = data.batches(training.batch, training.seed, training.augment, share)
        self.mean, self.training, self.share = data.mean, training, share
        self.steps = len(self.batches)

    def chunks(self, epoch: int, done: int) -> Iterator[Chunk]:
        for step, (pixels, labels) in enumerate(self.batches.epoch(epoch, skip=done), start=done):
            if self.training.cutout:
                cut_out(pixels, self.training.cutout, self.mean, self.training.seed, epoch, step, self.share)
            yield Chunk(pixels, labels, 0)


def _require_room_for_cutout(data: AnyDataset, training: "Training") -> None:
    smallest = min(data.image_shape[1:])
    if training.cutout > smallest:
        raise TrainingError(
            f"cutout must be at most {smallest}, the shorter side of the images, or it would blank all of some: "
            f"not {training.cutout}"
        )
