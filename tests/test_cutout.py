"""Cutout: a square of the mean colour in every training image, and nothing else than that."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from otprune.errors import TrainingError
from otprune.training import cutout
from otprune.training.cutout import cut_out
from otprune.training.data import AnyDataset, Dataset, Images, StreamedDataset
from otprune.training.feed import calibration, feed
from otprune.training.loop import train
from otprune.training.run import Run, Training
from tests.gpu import needs_gpu
from tests.streams import TRAINING, make_folder, streamed_run

CPU = torch.device("cpu")
MEAN = torch.tensor([0.25, 0.5, 0.75])
CUT = Training(epochs=1, batch=8, cutout=5, seed=3)


def white(count: int, height: int = 12, width: int = 9) -> Tensor:
    return torch.full((count, 3, height, width), 255, dtype=torch.uint8)


def blanked(pixels: Tensor) -> Tensor:
    """Which pixels are of the mean colour; white ones are not."""
    return (pixels == (255 * MEAN).round().to(torch.uint8).view(1, 3, 1, 1)).all(1)


def square(down: int, across: int, side: int, height: int, width: int) -> Tensor:
    found = torch.zeros(height, width, dtype=torch.bool)
    top, left = down - side // 2, across - side // 2
    found[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = True
    return found


@pytest.mark.parametrize("side", [1, 4, 5, 9])
def test_every_image_has_one_square_of_the_mean_colour_and_is_otherwise_as_it_was(side: int) -> None:
    pixels = white(300)
    cut_out(pixels, side, MEAN, seed=0, epoch=0)
    possible = {tuple(square(y, x, side, 12, 9).flatten().tolist()) for y in range(12) for x in range(9)}
    found = {tuple(one.flatten().tolist()) for one in blanked(pixels)}
    assert found <= possible and len(found) > 0.8 * len(possible)  # all over the image, and over its edges
    assert (pixels.amin(1)[~blanked(pixels)] == 255).all()


def test_squares_follow_from_seed_epoch_and_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(seed: int, epoch: int, step: int) -> Tensor:
        pixels = white(50)
        cut_out(pixels, 4, MEAN, seed, epoch, step)
        return pixels

    first, state = cut(0, 1, 0), torch.get_rng_state()
    monkeypatch.setattr(cutout, "CHUNK", 7)
    assert torch.equal(cut(0, 1, 0), first) and torch.equal(torch.get_rng_state(), state)
    assert not any(torch.equal(cut(*other), first) for other in ((1, 1, 0), (0, 0, 0), (0, 1, 1)))


def test_in_floating_point_the_mean_is_taken_as_it_is() -> None:
    pixels = torch.ones(20, 3, 6, 6)
    cut_out(pixels, 6, MEAN, seed=0, epoch=0)
    normalized = pixels - MEAN.view(1, 3, 1, 1)
    assert (normalized == 0).any() and set(pixels.unique().tolist()) == {0.25, 0.5, 0.75, 1.0}


def in_memory() -> Dataset:
    random = torch.Generator().manual_seed(0)
    images = Images(torch.randint(256, (40, 3, 12, 12), dtype=torch.uint8, generator=random), torch.arange(40) % 4)
    return Dataset.of(images, images, tuple("abcd"))


def streamed() -> StreamedDataset:
    data = in_memory()
    own = TensorDataset(data.train.pixels, data.train.labels)
    return StreamedDataset.of(own, own, data.classes, data.mean, data.std, workers=0)


@pytest.mark.parametrize("data", [in_memory(), streamed()], ids=["in memory", "streamed"])
def test_order_crops_and_mirrorings_are_those_of_a_training_without(data: AnyDataset) -> None:
    cut, whole = (list(feed(data, one, CPU).chunks(2, done=0)) for one in (CUT, replace(CUT, cutout=0)))
    colour = (255 * data.mean).round().to(torch.uint8).view(1, 3, 1, 1)
    for ours, theirs in zip(cut, whole, strict=True):
        changed = (ours.pixels != theirs.pixels).any(1)
        assert torch.equal(ours.labels, theirs.labels)
        assert (changed.flatten(1).sum(1) > 0).all() and (changed.flatten(1).sum(1) <= 25).all()
        assert torch.equal(ours.pixels, torch.where(changed[:, None], colour, theirs.pixels))


def test_the_images_themselves_stay_whole() -> None:
    data = in_memory()
    list(feed(data, CUT, CPU).chunks(0, done=0))
    assert torch.equal(data.train.pixels, in_memory().train.pixels)


@pytest.mark.parametrize("data", [in_memory(), streamed()], ids=["in memory", "streamed"])
def test_statistics_are_re_estimated_on_images_as_in_training(data: AnyDataset) -> None:
    blank = [(batch.abs() < 0.02).all(1).flatten(1).sum(1) for batch in calibration(data, CUT, images=40)]
    assert blank and all((found >= 9).all() for found in blank)


def test_a_stream_that_goes_on_inside_an_epoch_cuts_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    images, training = make_folder(tmp_path / "images"), replace(TRAINING, cutout=60)
    whole, broken_off = (streamed_run(images, tmp_path / name, training=training) for name in ("whole", "cut"))
    train(whole)
    broken_off.begin_epoch()
    broken_off.advance()
    broken_off.save()
    resumed = streamed_run(images, tmp_path / "cut", training=training)
    train(resumed)
    assert resumed.history == whole.history
    assert whole.history != _trained_without(images).history


def _trained_without(images: Path) -> Run:
    run = streamed_run(images, None)
    train(run)
    return run


def test_cutout_is_refused_below_zero_without_augmentation_and_where_it_is_larger_than_the_images() -> None:
    for wrong, message in (({"cutout": -1}, "cutout must be .* at least 0"), ({"augment": False}, "where augment is")):
        with pytest.raises(TrainingError, match=message):
            replace(CUT, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="cutout must be at most 12, the shorter side of the images"):
        feed(in_memory(), replace(CUT, cutout=13), CPU)


@needs_gpu
def test_a_gpu_cuts_the_same_squares() -> None:
    on_cpu, on_gpu = white(300), white(300).cuda()
    for pixels in (on_cpu, on_gpu):
        cut_out(pixels, 5, MEAN, seed=1, epoch=2)
    assert torch.equal(on_gpu.cpu(), on_cpu)
