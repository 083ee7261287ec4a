"""Images in memory: what they must be, what is held out of them, and the digits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from otprune.errors import DataError
from otprune.training.data import Dataset, Images, load, split_off


def random_images(labels: list[int]) -> Images:
    pixels = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return Images(pixels.contiguous(), torch.tensor(labels))


class TestImages:
    def test_refuses_other_pixels_and_labels(self) -> None:
        good = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
        with pytest.raises(DataError, match=r"pixels must be uint8 .* not torch.float32"):
            Images(good.float(), torch.zeros(2, dtype=torch.int64))
        with pytest.raises(DataError, match=r"shape \(2, 4, 4\)"):
            Images(good[:, 0], torch.zeros(2, dtype=torch.int64))
        with pytest.raises(DataError, match=r"one for each of the 2 images, not torch.int64 of shape \(3,\)"):
            Images(good, torch.zeros(3, dtype=torch.int64))

    @pytest.mark.parametrize("wrong", [-1, 3])
    def test_a_label_out_of_range_is_named(self, wrong: int) -> None:
        good, bad = random_images([0, 1, 2]), random_images([0, wrong, 2])
        with pytest.raises(DataError, match=rf"1 of 3 test labels are out of range.*image 1: {wrong}.*0 to 2"):
            Dataset.of(good, bad, ("a", "b", "c"))
        with pytest.raises(DataError, match="training labels"):
            Dataset.of(bad, good, ("a", "b", "c"))

    def test_no_image_at_all(self) -> None:
        images = random_images([0])
        with pytest.raises(DataError, match="not one test image"):
            Dataset.of(images, images[torch.tensor([False])], ("a",))

    def test_mean_and_std_are_those_of_the_training_pixels(self) -> None:
        pixels = torch.randint(256, (30, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        data = Dataset.of(Images(pixels, torch.zeros(30, dtype=torch.int64)), random_images([0]), ("a",))
        values = pixels.double() / 255
        torch.testing.assert_close(data.mean.double(), values.mean((0, 2, 3)), rtol=1e-6, atol=0)
        torch.testing.assert_close(data.std.double(), values.std((0, 2, 3), correction=0), rtol=1e-6, atol=0)

    def test_pixels_of_one_value_can_be_divided_by_their_std(self) -> None:
        images = Images(torch.full((3, 1, 2, 2), 77, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
        assert Dataset.of(images, images, ("a",)).std.tolist() == [1.0]


class TestSplitOff:
    labels = [0] * 40 + [1] * 20 + [2] * 10

    def test_takes_the_same_share_of_each_class_and_loses_nothing(self) -> None:
        rest, held_out = split_off(random_images(self.labels), 0.1, seed=0)
        assert rest.labels.bincount().tolist() == [36, 18, 9] and held_out.labels.bincount().tolist() == [4, 2, 1]
        both = torch.cat([rest.pixels, held_out.pixels])[:, 0, 0, 0]
        assert both.sort().values.tolist() == list(range(70))
        expected = torch.tensor(self.labels)[held_out.pixels[:, 0, 0, 0].long()]
        assert torch.equal(held_out.labels, expected)

    def test_a_dataset_keeps_everything_else(self) -> None:
        data = Dataset.of(random_images(self.labels), random_images([0, 1]), ("a", "b", "c"))
        less, held_out = data.held_out(0.1, seed=0)
        rest, expected = split_off(data.train, 0.1, seed=0)
        assert torch.equal(held_out.pixels, expected.pixels) and torch.equal(less.train.pixels, rest.pixels)
        assert less.test is data.test and less.mean is data.mean and less.std is data.std
        assert less.image_shape == held_out.image_shape == (1, 2, 2)
        assert [len(labels) for _, labels in held_out.batches(4)] == [4, 3]

    def test_follows_from_the_seed(self) -> None:
        splits = [split_off(random_images(self.labels), 0.2, seed)[1].pixels for seed in (0, 0, 1)]
        assert torch.equal(splits[0], splits[1]) and not torch.equal(splits[0], splits[2])

    @pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
    def test_refuses_a_fraction_that_is_none(self, fraction: float) -> None:
        with pytest.raises(DataError, match="between 0 and 1"):
            split_off(random_images(self.labels), fraction, seed=0)

    def test_refuses_to_hold_out_nothing_or_everything(self) -> None:
        for fraction in (0.001, 0.999):
            with pytest.raises(DataError, match="choose another fraction"):
                split_off(random_images(self.labels), fraction, seed=0)


class TestDigits:
    def test_are_those_of_scikit_learn_each_once(self) -> None:
        data, bunch = load("digits"), load_digits()
        both = [torch.cat(pair) for pair in zip(*[(i.pixels, i.labels) for i in (data.train, data.test)], strict=True)]
        restored = (both[0].flatten(1).float() * 16 / 255).round()
        found = sorted(zip(restored.tolist(), both[1].tolist(), strict=True))
        assert found == sorted(zip(bunch.data.tolist(), bunch.target.tolist(), strict=True))

    def test_the_split_is_the_same_every_time(self) -> None:
        np.random.seed(1)
        first = load("digits")
        np.random.seed(2)
        assert torch.equal(first.test.pixels, load("digits").test.pixels)
        assert first.train.labels.bincount().tolist() == [133, 136, 133, 137, 136, 136, 136, 134, 131, 135]


class TestLoad:
    def test_names_nobody_knows(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="neither a folder nor one of cifar10, cifar100, digits"):
            load(tmp_path / "cifar11")
        with pytest.raises(DataError, match="digits does without"):
            load("digits", root=tmp_path)
