"""A folder of images is trained on at the size that is asked for; data that has a size keeps it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from otprune.errors import DataError
from otprune.experiments.experiment import Experiment
from otprune.experiments.pipeline import data_of
from otprune.training.data import load
from otprune.training.data.folder import ImageFolderDataset
from tests.command_line import run_here, said

NET = """
from torch import nn

def build(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes)
    )
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for part in ("train", "val"):
        for number, label in enumerate(("dark", "light")):
            (tmp_path / "photos" / part / label).mkdir(parents=True)
            noise = np.random.default_rng(number).integers(256, size=(28, 30, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "photos" / part / label / "1.png")
    return tmp_path / "photos"


def test_images_come_at_the_size_asked_for_to_train_on_and_to_test(photos: Path) -> None:
    data = ImageFolderDataset(photos, workers=0, size=21)
    assert data.image_shape == (3, 21, 21)
    for batches in (data.batches(2, seed=0).epoch(0), data.batches(2, 0, augment=False).epoch(0), data.test.batches(2)):
        assert [tuple(pixels.shape) for pixels, _ in batches] == [(2, 3, 21, 21)]
    assert data.preparation.startswith("RGB, short side resized to 24, centre crop of 21")


def test_the_centre_of_an_image_of_the_right_size_is_itself(photos: Path) -> None:
    (pixels, _) = next(iter(ImageFolderDataset(photos, workers=0, size=24).test.batches(2)))  # 8/7 of 24 is 27.4
    assert pixels.shape[-1] == 24
    image = Image.open(photos / "val" / "dark" / "1.png").resize((28, 27), Image.Resampling.BILINEAR)
    image = image.crop((2, 2, 26, 26))
    assert torch.equal(pixels[0], torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1))


def test_without_it_they_are_224_pixels_wide(photos: Path) -> None:
    assert load(photos).image_shape == data_of(Experiment("a", str(photos))).image_shape == (3, 224, 224)
    assert data_of(Experiment("a", str(photos), image_size=32)).image_shape == (3, 32, 32)


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "digits"])
def test_data_of_a_fixed_size_is_not_resized(data: str) -> None:
    with pytest.raises(DataError, match=f"image_size is for folders of images.* those of {data} stay as they are"):
        load(data, image_size=32)


def test_a_copy_of_a_cifar_is_no_folder_of_images(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").touch()
    with pytest.raises(DataError, match="image_size is for folders of images"):
        load(tmp_path, image_size=32)


def test_a_network_for_small_images_is_trained_by_a_flag(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    own: dict[str, object] = {"model": f"{tmp_path / 'net.py'}:build", "data": photos, "batch": 2, "device": "cpu"}
    done = run_here("train", **own, epochs=0, image_size=24, out=tmp_path / "run")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "run" / "data.json").read_text())["image_shape"] == [3, 24, 24]
    other = said("train", **own, epochs=0, image_size=32, out=tmp_path / "run")
    assert other.code == 1 and "belongs to a run with image_size=24, not 32" in other.err
    fixed = said("train", model="digits_net", data="digits", image_size=32, out=tmp_path / "other")
    assert (fixed.code, fixed.err.startswith("--image-size is for folders of images")) == (1, True)
    nothing = said("train", **own, image_size=0, out=tmp_path / "other")
    assert (nothing.code, nothing.err) == (1, "--image-size must be at least 1, not 0\n")
