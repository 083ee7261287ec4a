"""Folders of images: every one is read, or named; what is held out is seen as in the test."""

import logging
import os
import random
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as V

from otprune.errors import DataError
from otprune.training.data import load
from otprune.training.data.folder import ImageFolderDataset
from otprune.training.data.folder_files import find
from otprune.training.evaluation import accuracy

# Python 3.12 warns of every fork in a process with threads; the workers only read files.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def picture(path: Path, size: tuple[int, int] = (60, 50), seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    for index in range(8):
        picture(root / "train" / ("cat" if index % 2 else "dog") / f"{index}.png", seed=index)
    for index in range(3):
        picture(root / "val" / ("dog" if index else "cat") / f"{index}.png", (300 + index, 280), seed=index)
    return root


def opened(root: Path, strict: bool = False, workers: int = 0) -> ImageFolderDataset:
    return ImageFolderDataset(root, strict, workers)


def all_of(batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    pixels, labels = zip(*batches, strict=True)
    return torch.cat(pixels), torch.cat(labels)


def centre(path: Path) -> Tensor:
    """The short side made 256 pixels long, and 224 by 224 pixels out of the middle."""
    image = Image.open(path)
    scale = 256 / min(image.size)
    width, height = (int(scale * side) for side in image.size)
    left, top = round((width - 224) / 2), round((height - 224) / 2)
    box = (left, top, left + 224, top + 224)
    return V.pil_to_tensor(image.resize((width, height), Image.Resampling.BILINEAR).crop(box))


def test_the_test_takes_the_centre_of_every_image(folder: Path) -> None:
    data = opened(folder)
    assert data.classes == ("cat", "dog") and data.image_shape == (3, 224, 224)
    assert (len(data.train), len(data.test)) == (8, 3)
    pixels, labels = all_of(data.test.batches(2))
    assert labels.tolist() == [0, 1, 1] and pixels.dtype == torch.uint8
    for own, path in zip(pixels, ("cat/0.png", "dog/1.png", "dog/2.png"), strict=True):
        assert torch.equal(own, centre(folder / "val" / path))


@FORKS
def test_training_batches_do_not_depend_on_the_workers(folder: Path) -> None:
    epochs = []
    for workers in (0, 2):
        batches = opened(folder, workers=workers).batches(4, seed=3)
        assert len(batches) == 2
        epochs.append([all_of(batches.epoch(number)) for number in (0, 1)])
    (first, second), (again, second_again) = epochs
    for one, other in ((first, again), (second, second_again)):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert tuple(first[0].shape) == (8, 3, 224, 224) and first[1].bincount().tolist() == [4, 4]
    assert not torch.equal(first[0], second[0])


def test_without_augmentation_the_centres_are_trained_on(folder: Path) -> None:
    pixels, _ = all_of(opened(folder).batches(4, seed=0, augment=False).epoch(0))
    expected = torch.stack([centre(path) for path in (folder / "train").rglob("*.png")])
    order = [int((expected == own).flatten(1).all(1).nonzero()) for own in pixels]
    assert sorted(order) == list(range(8))


def test_a_resumed_epoch_goes_on_where_it_was(folder: Path) -> None:
    whole = list(opened(folder).batches(2, seed=0).epoch(5))
    rest = list(opened(folder).batches(2, seed=0).epoch(5, skip=3))
    assert len(whole) == 4 and len(rest) == 1
    assert torch.equal(rest[0][0], whole[3][0])


def test_the_global_random_numbers_are_left_alone(folder: Path) -> None:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    list(opened(folder).batches(2, seed=0).epoch(0))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


@FORKS
@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_named_and_counted(workers: int, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = [folder / "train" / "cat" / "1.png", folder / "val" / "cat" / "0.png"]
    broken[0].write_bytes(broken[0].read_bytes()[:300])
    broken[1].write_text("no image")
    data = opened(folder, workers=workers)
    with caplog.at_level(logging.WARNING):
        train = data.batches(2, seed=0)
        sizes = [len(labels) for number in (0, 1) for _, labels in train.epoch(number)]
        _, labels = all_of(data.test.batches(1))
    assert sizes == [2] * 8 and labels.tolist() == [1, 1]
    assert list(data.unreadable) == broken
    messages = [record.getMessage() for record in caplog.records]
    assert [message.startswith(f"{path} cannot") for path, message in zip(broken, messages, strict=True)] == [True] * 2
    assert "as number 2" in messages[1]


@FORKS
@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_an_error_where_asked(workers: int, folder: Path) -> None:
    broken = folder / "val" / "cat" / "0.png"
    broken.write_text("no image")
    with pytest.raises(DataError, match=rf"^{re.escape(str(broken))} cannot be read: cannot identify .*`strict`"):
        list(opened(folder, strict=True, workers=workers).test.batches(2))


def test_a_folder_in_which_nothing_can_be_read_is_no_data(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.write_text("no image")
    data = opened(folder)
    with pytest.raises(DataError, match=r"^too many images in a row cannot be read, the last one .*\.png"):
        list(data.batches(2, seed=0).epoch(0))
    with pytest.raises(DataError, match="not one of 3 images to evaluate on can be read"):
        accuracy(nn.Linear(1, 2), data.test, data.mean, data.std)


class TestHeldOut:
    def test_is_a_share_of_each_class_and_seen_as_in_the_test(self, folder: Path) -> None:
        data, held = opened(folder).held_out(0.25, seed=0)
        (pixels, labels), rest = all_of(held.batches(8)), all_of(data.batches(6, seed=0, augment=False).epoch(0))
        assert labels.tolist() == [0, 1] and rest[1].bincount().tolist() == [3, 3]
        assert (len(data.train), len(held), len(data.test), held.image_shape) == (6, 2, 3, (3, 224, 224))
        expected = {centre(path).sum().item() for path in (folder / "train").rglob("*.png")}
        assert {own.sum().item() for own in (*pixels, *rest[0])} == expected and len(expected) == 8

    def test_follows_from_the_seed(self, folder: Path) -> None:
        first, again, other = (all_of(opened(folder).held_out(0.5, seed)[1].batches(8))[0] for seed in (0, 0, 1))
        assert torch.equal(first, again) and not torch.equal(first, other)

    def test_what_is_unreadable_in_it_is_counted_with_the_rest(self, folder: Path) -> None:
        for name in ("cat/1.png", "cat/3.png", "cat/5.png", "cat/7.png"):
            (folder / "train" / name).write_text("no image")
        data = opened(folder)
        less, held = data.held_out(0.5, seed=0)
        assert all_of(held.batches(4))[1].tolist() == [1, 1]
        list(less.batches(4, seed=0).epoch(0))
        assert len(less.unreadable) == 4 and less.unreadable is data.unreadable

    def test_accuracy_is_that_of_the_images_that_can_be_read(self, folder: Path) -> None:
        """The net sees a dog in everything, and of the pictures left one is a dog and one a cat."""
        (folder / "val" / "dog" / "2.png").write_text("no image")
        data = opened(folder)
        always_dog = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        nn.init.zeros_(always_dog[2].weight)
        always_dog[2].bias.data = torch.tensor([0.0, 1.0])
        assert accuracy(always_dog, data.test, data.mean, data.std) == 0.5


def test_ilsvrc_as_it_unpacks(tmp_path: Path) -> None:
    base = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    for name in ("train/n02/n02_1.JPEG", "train/n01/n01_1.JPEG", "val/v_2.JPEG", "val/v_1.JPEG"):
        picture(base / name)
    (tmp_path / "LOC_val_solution.csv").write_text(
        "ImageId,PredictionString\nv_1,n02 1 2 3 4 n02 5 6 7 8\nv_2,n01 1 2 3 4\n"
    )
    _, val, classes = find(tmp_path)
    assert classes == load(tmp_path).classes == ("n01", "n02")
    assert [val.path(index).name for index in range(2)] == ["v_1.JPEG", "v_2.JPEG"]
    assert val.labels.tolist() == [1, 0]


def test_flat_validation_images_need_their_classes(folder: Path) -> None:
    shutil.rmtree(folder / "val")
    picture(folder / "val" / "v_1.png")
    with pytest.raises(DataError, match=r"no folder for any class.*LOC_val_solution.csv"):
        load(folder)
    (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\nv_1,cow 1 2 3 4\n")
    with pytest.raises(DataError, match=r"names no class of train/ for .*v_1.png, but cow"):
        load(folder)


def test_folders_that_are_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs train/ and val/"):
        load(tmp_path)
    with pytest.raises(DataError, match="8 images do not fill one batch of 9"):
        opened(folder).batches(9, seed=0)
    picture(folder / "val" / "cow" / "1.png")
    with pytest.raises(DataError, match=r"1 classes that train/ has not: cow"):
        load(folder)
    shutil.rmtree(folder / "train")
    (folder / "train" / "cow").mkdir(parents=True)
    with pytest.raises(DataError, match=r"train has no images"):
        load(folder)


def test_links_are_followed_and_every_folder_is_read_once(folder: Path, tmp_path: Path) -> None:
    cats, elsewhere = folder / "train" / "cat", tmp_path / "elsewhere"
    picture(elsewhere / "more" / "1.png")
    (cats / "linked").symlink_to(elsewhere)
    (cats / "again").symlink_to(elsewhere / "more")
    (cats / "self").symlink_to(cats)
    (cats / "up").symlink_to(elsewhere)
    train, _, _ = find(folder)
    found = {os.fsdecode(path) for path in train.paths}
    assert found == {f"{'cat' if n % 2 else 'dog'}/{n}.png" for n in range(8)} | {"cat/again/1.png"}
