"""Images too many for memory: read batch by batch by other processes, in an order that can be drawn again."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from otprune.errors import DataError
from otprune.training.data.readers import batches_of
from otprune.training.data.seeds import derived_seed, generator, seeded
from otprune.training.data.share import WHOLE, Share

MOST_WORKERS = 16
BATCHES_AHEAD = 4  # that each worker prepares
MOST_REPLACEMENTS = 100

log = logging.getLogger(__name__)


class Sample(NamedTuple):
    """An image and its label; without pixels it could not be read, for a reason to note, or for an error to raise."""

    pixels: Tensor | None
    label: int
    unreadable: dict[Path, str] = {}  # noqa: RUF012, since a tuple's default is shared, and nobody writes to it
    error: str | None = None


class Source(Protocol):
    """Images by number. It is copied into the processes that read; only the original's `unreadable` is kept up."""

    @property
    def unreadable(self) -> dict[Path, str]: ...

    @property
    def image_shape(self) -> tuple[int, ...]: ...

    @property
    def labels(self) -> Tensor:
        """To hold out a share of each class by; all the same where they cannot be known without reading everything."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def chosen(self, indices: Tensor) -> "Source":
        """Those images alone."""


class StreamedPart:
    """Images of a source, read when they are needed by `workers` processes, by default one for each core.

    An image that cannot be read is named in the log and counted in `unreadable`.

    >>> from torch.utils.data import TensorDataset
    >>> from otprune.training.data.items import Items
    >>> own = TensorDataset(torch.zeros(3, 1, 2, 2), torch.arange(3))
    >>> part = StreamedPart(Items.of(own, "test", classes=3), workers=0)
    >>> [labels.tolist() for _, labels in part.batches(2)]
    [[0, 1], [2]]
    >>> len(part.shuffled(2, seed=0))
    1
    """

    def __init__(self, source: Source, workers: int | None = None) -> None:
        self.source, self.workers = source, workers

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: Tensor) -> "StreamedPart":
        """The images that a mask marks."""
        return StreamedPart(self.source.chosen(chosen.nonzero().flatten()), self.workers)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width."""
        return self.source.image_shape

    @property
    def unreadable(self) -> dict[Path, str]:
        """Why which files could not be read."""
        return self.source.unreadable

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pixels and labels of every image that can be read, in order."""
        return Batches(self.source, _Order(len(self), size, None), self.workers).epoch(0)

    def shuffled(self, size: int, seed: int, share: Share = WHOLE) -> "Batches":
        """Full batches, every image once an epoch, in random order; for one that is unreadable the next stands in.

        Of each batch, only the images of the share are read.
        """
        return Batches(self.source, _Order(len(self), size, seed, share), self.workers)


class Batches:
    """Batches of pixels and int64 labels, epoch by epoch.

    What an epoch brings follows from the seed and the epoch alone, not from the number of workers.
    """

    def __init__(self, source: Source, order: "_Order", workers: int | None) -> None:
        workers = min(_cores(), MOST_WORKERS) if workers is None else workers
        self._source, self._order = source, order
        self._loader = DataLoader(
            _Samples(source, order.seed),
            batch_sampler=order,
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=BATCHES_AHEAD if workers else None,
            collate_fn=_collate,
            worker_init_fn=_leave_signals_to_the_main_process,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # or else every epoch would advance the user's random numbers
        )

    def __len__(self) -> int:
        return len(self._order)

    def epoch(self, number: int, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch; a resumed run skips those it has had, without reading them."""
        self._order.epoch, self._order.skip = number, skip
        for batch in batches_of(self._loader):
            if batch.error is not None:
                raise DataError(batch.error)
            self._note(batch.unreadable)
            if self._order.seed is not None and len(batch.labels) < self._order.own:
                raise DataError(
                    f"too many images in a row cannot be read, the last one {list(batch.unreadable)[-1]}: "
                    "see what is wrong with the folder"
                )
            if len(batch.labels):
                yield batch.pixels, batch.labels

    def _note(self, unreadable: dict[Path, str]) -> None:
        known = self._source.unreadable
        for path, reason in unreadable.items():
            if path not in known:
                known[path] = reason
                log.warning("%s cannot be read (%s) and is left out, as number %d", path, reason, len(known))


class _Batch(NamedTuple):
    pixels: Tensor
    labels: Tensor
    unreadable: dict[Path, str]
    error: str | None


class _Order(Sampler[list[tuple[int, int]]]):
    """Batches of (epoch, index): shuffled and all full with a seed, otherwise in order and the last one short.

    Of each batch it has a share; what the whole batch is does not depend on that.
    """

    def __init__(self, count: int, batch: int, seed: int | None, share: Share = WHOLE) -> None:
        self.count, self.batch, self.seed = count, batch, seed
        self.share, self.own = share, share.size(batch)
        self.epoch = self.skip = 0
        if len(self) == 0:
            raise DataError(f"{count} images do not fill one batch of {batch}: take a smaller one, with --batch")

    def __len__(self) -> int:
        return self.count // self.batch if self.seed is not None else -(-self.count // self.batch)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        indices = list(range(self.count)) if self.seed is None else self._shuffled(self.seed)
        for start in range(self.skip * self.batch, len(self) * self.batch, self.batch):
            whole = indices[start : start + self.batch]
            yield [(self.epoch, index) for index in whole[self.share.within(self.batch)]]

    def _shuffled(self, seed: int) -> list[int]:
        order: list[int] = torch.randperm(self.count, generator=generator(seed, self.epoch)).tolist()
        return order


class _Samples(TorchDataset[Sample]):
    """Samples by (epoch, index). Chance is seeded for each one, so it does not matter which worker gets it."""

    def __init__(self, source: Source, seed: int | None) -> None:
        self.source, self.seed = source, seed or 0
        self.replacements = 0 if seed is None else min(MOST_REPLACEMENTS, len(source) - 1)

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        epoch, index = key
        unreadable: dict[Path, str] = {}
        for candidate in range(index, index + 1 + self.replacements):
            with seeded(derived_seed(self.seed, epoch, index)):
                sample = self.source[candidate % len(self.source)]
            unreadable |= sample.unreadable
            if sample.pixels is not None or sample.error is not None:
                break
        return sample._replace(unreadable=unreadable)


def _collate(samples: list[Sample]) -> _Batch:
    readable = [(sample.pixels, sample.label) for sample in samples if sample.pixels is not None]
    pixels = torch.stack([pixels for pixels, _ in readable]).contiguous() if readable else torch.empty(0)
    labels = torch.tensor([label for _, label in readable], dtype=torch.int64)
    unreadable = {path: reason for sample in samples for path, reason in sample.unreadable.items()}
    return _Batch(pixels, labels, unreadable, next((s.error for s in samples if s.error is not None), None))


@contextmanager
def at_most_cores(cores: float | None) -> Iterator[None]:
    """Read with no more processes than so many cores, and one at least, where the rest of the machine is others'.

    >>> with at_most_cores(0.5):
    ...     _cores()
    1
    """
    before, _limits.cores = _limits.cores, cores
    try:
        yield
    finally:
        _limits.cores = before


@dataclass
class _Limits:
    """What this process has been given of the machine."""

    cores: float | None = None


_limits = _Limits()


def _cores() -> int:
    """Those that this process may use: in a container not all, and beside others that torchrun started a part."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shared = usable // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, shared if _limits.cores is None else min(shared, int(_limits.cores)))


def _leave_signals_to_the_main_process(worker: int) -> None:
    """Terminals and torchrun send theirs to a group of processes; the main one needs its workers until it has saved."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgrp"):
        os.setpgrp()
