"""A whole epoch augmented at once is what augmenting image by image gives."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as V

from otprune.training import augment
from otprune.training.augment import augmented_epoch, choose
from tests.gpu import needs_gpu


def pictures(count: int, channels: int = 3, height: int = 32, width: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (count, channels, height, width), dtype=torch.uint8, generator=generator)
    return pixels, torch.arange(count)


def one_by_one(pixels: Tensor, epoch: int, seed: int, pad: int) -> Tensor:
    """The common pipeline, on one image after the other: pad raw pixels with black, crop, mirror."""
    height, width = pixels.shape[2:]
    images = []
    for index, top, left, mirrored in zip(*choose(len(pixels), epoch, seed, pad), strict=True):
        image = V.crop(V.pad(pixels[index], [pad] * 4, fill=0), int(top), int(left), height, width)
        images.append(V.horizontal_flip(image) if mirrored else image)
    return torch.stack(images)


@pytest.mark.parametrize(
    ("count", "channels", "height", "width", "pad"),
    [(40, 3, 32, 32, 4), (9, 1, 8, 8, 1), (7, 2, 5, 9, 3), (3, 3, 4, 4, 0)],
)
def test_equals_torchvision_image_by_image(count: int, channels: int, height: int, width: int, pad: int) -> None:
    pixels, labels = pictures(count, channels, height, width)
    images, _ = augmented_epoch(pixels, labels, epoch=2, seed=5, pad=pad)
    assert images.dtype == torch.uint8 and images.is_contiguous()
    assert torch.equal(images, one_by_one(pixels, 2, 5, pad))


def test_labels_follow_their_images() -> None:
    pixels = torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1).expand(50, 1, 8, 8)
    images, labels = augmented_epoch(pixels, torch.arange(50), epoch=0, seed=0)
    assert torch.equal(images.flatten(1).max(1).values.long(), labels)
    assert labels.sort().values.equal(torch.arange(50)) and not labels.equal(torch.arange(50))


def test_follows_from_seed_and_epoch_alone() -> None:
    pixels, labels = pictures(64)
    first = augmented_epoch(pixels, labels, epoch=1, seed=0)
    torch.rand(5)
    again = augmented_epoch(pixels, labels, epoch=1, seed=0)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    for epoch, seed in ((2, 0), (1, 1), (0, 1)):
        assert not torch.equal(augmented_epoch(pixels, labels, epoch, seed)[1], first[1])


def test_leaves_the_global_random_numbers_and_the_images_alone() -> None:
    pixels, labels = pictures(16)
    before, state = pixels.clone(), torch.get_rng_state()
    augmented_epoch(pixels, labels, epoch=0, seed=0)
    assert torch.equal(pixels, before) and torch.equal(torch.get_rng_state(), state)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, labels = pictures(50)
    whole, _ = augmented_epoch(pixels, labels, epoch=0, seed=0)
    monkeypatch.setattr(augment, "CHUNK", 7)
    assert torch.equal(augmented_epoch(pixels, labels, epoch=0, seed=0)[0], whole)


def test_every_crop_and_both_mirrorings_are_equally_likely() -> None:
    count, pad = 16_200, 1
    _, top, left, mirrored = choose(count, epoch=0, seed=0, pad=pad)
    frequency = (top * 6 + left * 2 + mirrored).bincount(minlength=18) / count
    assert len(frequency) == 18
    assert (frequency - 1 / 18).abs().max() < 5 * (1 / 18 / count) ** 0.5  # five standard deviations


@needs_gpu
def test_a_gpu_gives_the_same_epoch() -> None:
    pixels, labels = pictures(300)
    on_cpu = augmented_epoch(pixels, labels, epoch=3, seed=1)
    on_gpu = augmented_epoch(pixels.cuda(), labels.cuda(), epoch=3, seed=1)
    assert on_gpu[0].is_cuda and torch.equal(on_gpu[0].cpu(), on_cpu[0]) and torch.equal(on_gpu[1].cpu(), on_cpu[1])
