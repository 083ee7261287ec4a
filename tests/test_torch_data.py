"""Any torch Dataset as training data: what it may yield, what is said of anything else, and what is left to chance."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset

from otprune.errors import DataError
from otprune.training.data import StreamedDataset
from otprune.training.data.stream import StreamedPart

# Python 3.12 warns of every fork in a process with threads; the workers only read.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
CLASSES = ("a", "b", "c")


class Made(TorchDataset[Any]):
    """Items that a function makes of their numbers."""

    def __init__(self, make: Callable[[int], Any], count: int = 12) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def pixels(index: int, height: int = 4) -> Tensor:
    return torch.full((3, height, 5), index, dtype=torch.uint8)


def good(index: int) -> Any:
    return pixels(index), index % 3


def streamed(train: Any = good, test: Any = good, workers: int = 0, **options: Any) -> StreamedDataset:
    return StreamedDataset.of(Made(train), Made(test), CLASSES, workers=workers, **options)


def all_of(part: StreamedPart) -> tuple[Tensor, Tensor]:
    found, labels = zip(*part.batches(5), strict=True)
    return torch.cat(found), torch.cat(labels)


def pil(mode: str) -> Callable[[int], Any]:
    return lambda index: (Image.new("RGB", (5, 4), (index, index, index)).convert(mode), index % 3)


@pytest.mark.parametrize(
    ("make", "channels", "dtype"),
    [
        (good, 3, torch.uint8),
        (pil("RGB"), 3, torch.uint8),
        (pil("L"), 1, torch.uint8),
        (lambda index: (pixels(index).float(), np.int64(index % 3)), 3, torch.float32),
        (lambda index: [pixels(index).double(), torch.tensor(index % 3)], 3, torch.float32),
    ],
    ids=["uint8", "PIL", "grey PIL", "float32", "float64"],
)
def test_items_come_out_as_they_are(make: Callable[[int], Any], channels: int, dtype: torch.dtype) -> None:
    data = streamed(make, make)
    assert data.image_shape == (channels, 4, 5) and (len(data.train), len(data.test)) == (12, 12)
    found, labels = all_of(data.test)
    assert found.dtype == dtype and found.is_contiguous()
    assert torch.equal(found[:, -1, -1, -1].long(), torch.arange(12)) and torch.equal(labels, torch.arange(12) % 3)


def test_a_pil_image_is_not_turned_round() -> None:
    values = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    found, _ = all_of(streamed(test=lambda index: (Image.fromarray(values), 0)).test)
    assert torch.equal(found[0], torch.from_numpy(values).permute(2, 0, 1))


@FORKS
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wrong", [3, -1])
def test_a_label_out_of_range_names_its_item(wrong: int, workers: int) -> None:
    data = streamed(lambda index: (pixels(index), wrong if index == 7 else 0), workers=workers)
    said = rf"^item 7 of the training data has the label {wrong}: with 3 classes, labels go from 0 to 2$"
    with pytest.raises(DataError, match=said):
        list(data.batches(4, seed=0).epoch(0))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ((pixels(0), 0.5), "has the label 0.5, which is not a whole number"),
        ((pixels(0), torch.tensor([0, 1])), r"has the label tensor\(\[0, 1\]\), which"),
        ((pixels(0, height=6), 0), r"is torch.uint8 of shape \(3, 6, 5\), the first one .* \(3, 4, 5\): let the Data"),
        ((pixels(0).float(), 0), "is torch.float32 of shape .*, the first one torch.uint8"),
        ((pixels(0)[0], 0), r"torch.uint8 of shape \(4, 5\), not uint8 or floating point of shape \(channels"),
        ((pixels(0).int(), 0), "is torch.int32 of shape"),
        ((np.zeros((3, 4, 5)), 0), "is a ndarray, not a tensor or a PIL image"),
        ((Image.new("P", (5, 4)), 0), "is of mode P: let the Dataset convert it"),
        ((pixels(0), 0, "more"), "is a tuple, not a pair"),
        ({"image": pixels(0)}, "is a dict, not a pair"),
    ],
)
def test_what_is_no_image_with_a_label_is_named(item: Any, said: str) -> None:
    data = streamed(test=lambda index: item if index == 6 else good(index))
    with pytest.raises(DataError, match=f"item 6 of the test data.*{said}"):
        all_of(data.test)


def test_the_first_item_is_looked_at_at_once() -> None:
    with pytest.raises(DataError, match="item 0 of the test data is a Tensor, not a pair"):
        streamed(test=pixels)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


def test_data_that_cannot_be_had_by_number_is_refused() -> None:
    with pytest.raises(DataError, match="the training data has no length: give a map-style Dataset"):
        StreamedDataset.of(Endless(), Made(good), CLASSES)
    with pytest.raises(DataError, match="there is not one test image"):
        StreamedDataset.of(Made(good), Made(good, count=0), CLASSES)


def test_mean_and_std_change_nothing_unless_given() -> None:
    assert streamed().mean.tolist() == [0.0] * 3 and streamed().std.tolist() == [1.0] * 3
    given = streamed(mean=(0.1, 0.2, 0.3), std=torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(given.mean, torch.tensor([0.1, 0.2, 0.3]))
    assert given.std.tolist() == [1.0, 2.0, 3.0]
    for wrong in ({"mean": [0.5]}, {"mean": [0.1, 0.2, torch.nan]}, {"std": [1.0, 0.0, 1.0]}):
        with pytest.raises(DataError, match=f"^{next(iter(wrong))} must be"):
            streamed(**wrong)


def noisy(index: int) -> Any:
    """Draws from every generator that a transform may use."""
    drawn = torch.rand(1).item(), random.random(), np.random.random()
    return torch.tensor([float(index), *drawn, 0.0]).view(1, 1, 5), 0


@FORKS
def test_chance_follows_from_seed_epoch_and_item_not_from_the_workers() -> None:
    epochs = {}
    for workers in (0, 2):
        batches = streamed(noisy, noisy, workers).batches(4, seed=5)
        epochs[workers] = [torch.cat([found for found, _ in batches.epoch(number)]).view(12, 5) for number in (0, 1)]
    for alone, among in zip(epochs[0], epochs[2], strict=True):
        assert torch.equal(alone, among)
    first, second = (epoch[epoch[:, 0].argsort()] for epoch in epochs[0])
    assert torch.equal(first[:, 0], torch.arange(12.0)) and not torch.equal(*(epoch[:, 0] for epoch in epochs[0]))
    for column in (1, 2, 3):
        assert len({*first[:, column].tolist(), *second[:, column].tolist()}) == 24
    other = torch.cat([found for found, _ in streamed(noisy).batches(4, seed=6).epoch(0)]).view(12, 5)
    assert not torch.equal(other, epochs[0][0])


def test_a_resumed_epoch_goes_on_where_it_was_without_reading_the_rest() -> None:
    whole = list(streamed(noisy).batches(4, seed=0).epoch(3))
    read: list[int] = []

    def noted(index: int) -> Any:
        read.append(index)
        return noisy(index)

    data = streamed(noted)
    read.clear()
    rest = list(data.batches(4, seed=0).epoch(3, skip=2))
    assert len(rest) == 1 and torch.equal(rest[0][0], whole[2][0]) and len(read) == 4


def test_held_out_images_come_from_the_plain_ones() -> None:
    def darkened(index: int) -> Any:
        return pixels(index + 100), index % 3

    data, held = streamed(darkened, plain=Made(good)).held_out(0.25, seed=1)
    chosen = all_of(held)[0][:, 0, 0, 0].tolist()
    rest = [int(own[0, 0, 0]) for found, _ in data.batches(3, seed=0).epoch(0) for own in found]
    assert len(held) == len(chosen) == 3 and len(data.train) == len(rest) == 9
    assert sorted([*chosen, *(number - 100 for number in rest)]) == list(range(12))
    assert sorted(int(own[0, 0, 0]) for own in all_of(data.plain)[0]) == sorted(number - 100 for number in rest)
    assert all_of(streamed(darkened).held_out(0.25, seed=1)[1])[0][:, 0, 0, 0].tolist() == [n + 100 for n in chosen]


def test_an_item_that_was_held_out_keeps_its_number_in_what_is_said_of_it() -> None:
    wrong = streamed(lambda index: (pixels(index), index if index < 1 else 9)).held_out(0.5, seed=0)[1]
    numbers = wrong.source.numbers.tolist()  # type: ignore[attr-defined]
    first = next(number for number in numbers if number > 0)
    with pytest.raises(DataError, match=f"^item {first} of the training data has the label 9"):
        all_of(wrong)


def test_plain_images_must_be_as_many() -> None:
    with pytest.raises(DataError, match="`plain` has 5 images, `train` 12"):
        streamed(plain=Made(good, count=5))
