"""Training on a stream of batches is training on the same batches in memory, and goes on wherever it was broken off."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from otprune.errors import DataError
from otprune.training import loop
from otprune.training.checkpoint import checkpoints, newest
from otprune.training.data import AnyDataset, Dataset, StreamedDataset
from otprune.training.data.folder import ImageFolderDataset
from otprune.training.data.images import Images
from otprune.training.data.pixels import normalized
from otprune.training.evaluation import accuracy
from otprune.training.failures import RunsFailed
from otprune.training.feed import calibration
from otprune.training.loop import train, train_together
from otprune.training.run import EpochRecord, Run, Training
from tests.gpu import needs_gpu
from tests.processes import finish, start
from tests.streams import TRAINING, make_folder, net, streamed_run, train_streamed, train_until_told_to_stop

PLAIN = Training(epochs=3, batch=8, rate=0.05, lam=1e-3, augment=False)


def pictures(count: int, seed: int) -> Images:
    """Noise, brighter where the label is 1."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    pixels = torch.randint(150, (count, 3, 16, 16), generator=generator) + 100 * labels.view(-1, 1, 1, 1)
    return Images(pixels.to(torch.uint8), labels)


IN_MEMORY = Dataset.of(pictures(45, seed=0), pictures(20, seed=1), ("dark", "bright"))


def torch_data(
    change: Callable[[Tensor], Tensor], mean: Tensor | None, std: Tensor | None, workers: int = 0
) -> StreamedDataset:
    """The same images through torch Datasets."""
    train, test = (TensorDataset(change(part.pixels), part.labels) for part in (IN_MEMORY.train, IN_MEMORY.test))
    return StreamedDataset.of(train, test, IN_MEMORY.classes, mean, std, workers=workers)


def as_it_is(workers: int = 0) -> StreamedDataset:
    return torch_data(lambda pixels: pixels, IN_MEMORY.mean, IN_MEMORY.std, workers)


def scaled_as_in_a_step(pixels: Tensor) -> Tensor:
    std = IN_MEMORY.std.view(1, -1, 1, 1)
    return pixels * (1 / (255 * std)) - IN_MEMORY.mean.view(1, -1, 1, 1) / std


def trained(data: AnyDataset, training: Training = PLAIN) -> Run:
    run = Run(net(), data, training)
    train(run)
    return run


def assert_same(left: Run, right: Run) -> None:
    assert left.history == right.history and len(left.history) == left.training.epochs
    torch.testing.assert_close(dict(left._tensors()), dict(right._tensors()), rtol=0, atol=0)


@pytest.mark.parametrize(
    "data",
    [as_it_is(), torch_data(scaled_as_in_a_step, None, None)],
    ids=["uint8", "floating point that is normalized already"],
)
def test_a_stream_trains_as_the_same_images_in_memory_do(data: StreamedDataset) -> None:
    """To the last bit: 5 batches an epoch, and 5 images that wait for the next one."""
    streamed = trained(data)
    assert_same(streamed, trained(IN_MEMORY))
    assert streamed.steps == 5 and streamed.history[-1].loss < streamed.history[0].loss
    assert accuracy(streamed.model, data.test, data.mean, data.std) == accuracy(
        streamed.model, IN_MEMORY.test, IN_MEMORY.mean, IN_MEMORY.std
    )


@needs_gpu
def test_on_a_gpu_a_stream_from_workers_trains_as_images_in_memory_do() -> None:
    """The graph is captured while batches are on their way, and replayed on the batches that come."""
    histories = []
    for data in (as_it_is(workers=2), IN_MEMORY):
        steady = nn.Sequential(*(module for module in net().children() if not isinstance(module, nn.Dropout)))
        run = Run(steady.cuda(), data, replace(PLAIN, rate=0.01))
        train(run)
        assert 0 <= accuracy(run.model, data.test, data.mean, data.std) <= 1
        histories.append([epoch.loss for epoch in run.history])
    assert histories[0] == pytest.approx(histories[1], rel=0.02)


def test_floating_point_in_the_unit_range_is_normalized_by_what_is_given() -> None:
    data = torch_data(lambda pixels: pixels / 255, IN_MEMORY.mean, IN_MEMORY.std)
    found, expected = (dict(trained(source)._tensors()) for source in (data, IN_MEMORY))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_stream_among_other_runs_is_what_it_is_alone() -> None:
    trainings = [PLAIN, replace(PLAIN, epochs=2, batch=5, seed=1), replace(PLAIN, epochs=4, lam=1e-2)]
    sources: tuple[AnyDataset, ...] = (as_it_is(), as_it_is(), IN_MEMORY)
    together = [Run(net(), data, training) for data, training in zip(sources, trainings, strict=True)]
    train_together(together)
    for run, data in zip(together, sources, strict=True):
        assert_same(run, trained(data, run.training))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def undisturbed(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(train_streamed, images, folder)
    return folder


def assert_same_end(left: Path, right: Path) -> None:
    ours, theirs = newest(left), newest(right)
    assert ours is not None and theirs is not None
    assert ours.path.name == theirs.path.name == f"at-{TRAINING.epochs:05d}-0000000.safetensors"
    torch.testing.assert_close(dict(ours.tensors), dict(theirs.tensors), rtol=0, atol=0)
    assert (ours.state, ours.settings) == (theirs.state, theirs.settings)


@pytest.mark.parametrize("moment", ["at-00000-*3*", "at-00001-*2*"], ids=["first epoch", "second epoch"])
def test_a_killed_training_on_a_folder_ends_the_same(
    moment: str, images: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """Killed inside an epoch, with batches on their way from two workers; one file is no picture."""
    process = start(train_streamed, images, tmp_path)
    while process.is_alive() and not list(tmp_path.glob(moment)):
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL and checkpoints(tmp_path)
    finish(train_streamed, images, tmp_path)
    assert_same_end(tmp_path, undisturbed)


@pytest.mark.usefixtures("one_thread")
def test_a_training_goes_on_inside_an_epoch_with_other_workers(images: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Broken off after every step; what is read does not depend on who reads it."""
    for steps in range(1, 5):
        run = streamed_run(images, tmp_path)
        run.begin_epoch()
        run.advance()
        assert run.position == steps
        run.save()
    train(streamed_run(images, tmp_path))
    assert_same_end(tmp_path, undisturbed)


@pytest.fixture
def one_thread() -> object:
    """As in the processes: sums come out the same to the last bit only if they are split the same way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_ctrl_c_reaches_the_workers_too_and_the_training_is_saved(images: Path, tmp_path: Path) -> None:
    folder, message = tmp_path / "run", tmp_path / "message"
    process = start(train_until_told_to_stop, images, folder, message)
    while process.is_alive() and not message.exists():
        time.sleep(0.01)
    assert process.pid is not None
    os.killpg(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 0
    assert message.read_text() == f"stopped and saved in {folder}: give the same command again to go on"
    assert len(checkpoints(folder)) == 1


def test_an_unreadable_file_is_counted_and_another_one_trained_on(images: Path) -> None:
    data = ImageFolderDataset(images, workers=0)
    run = Run(net(), data, TRAINING)
    train(run)
    assert [path.name for path in data.unreadable] == ["7.png"]
    assert run.steps == 5 and all(epoch.loss > 0 for epoch in run.history)


def a_reader() -> int:
    """The process that reads for the only loader of this one."""
    return next(child.pid or 0 for child in multiprocessing.active_children())


def test_a_reader_that_is_killed_fails_the_run_that_needs_it_and_no_other(images: Path) -> None:
    """Long before its batches are all had, so that the run waits for one that cannot come."""
    before = signal.getsignal(signal.SIGCHLD)
    fed = streamed_run(images, None, workers=1, training=replace(TRAINING, epochs=50))
    other = Run(net(), IN_MEMORY, PLAIN)
    killed: list[int] = []

    def kill(run: Run, epoch: EpochRecord) -> None:
        if run is fed and not killed:
            killed.append(a_reader())
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(RunsFailed) as failed:
        train_together([fed, other], kill)
    [(run, error)] = failed.value.errors
    assert run is fed and isinstance(error, DataError)
    assert "was killed" in str(error) and str(killed[0]) in str(error) and "give the same command again" in str(error)
    assert other.done and signal.getsignal(signal.SIGCHLD) is before


def test_fewer_images_than_a_batch_are_refused(images: Path) -> None:
    with pytest.raises(DataError, match="20 images do not fill one batch of 21"):
        streamed_run(images, None, training=replace(TRAINING, batch=21))


class TestCalibration:
    def test_gives_normalized_batches_of_a_draw_that_no_epoch_had(self) -> None:
        data = as_it_is()
        batches = list(calibration(data, PLAIN, images=20))
        assert [len(batch) for batch in batches] == [8, 8, 8]  # whole batches
        drawn = data.batches(PLAIN.batch, PLAIN.seed).epoch(PLAIN.epochs)
        for batch, (pixels, _) in zip(batches, drawn, strict=False):
            assert torch.equal(batch, normalized(pixels, data.mean, data.std))
        assert len(list(calibration(data, PLAIN, images=10_000))) == 5

    def test_gives_the_same_images_from_memory(self) -> None:
        streamed = torch.cat(list(calibration(as_it_is(), PLAIN, images=40)))
        (in_memory,) = calibration(IN_MEMORY, PLAIN, images=40)
        assert torch.equal(streamed, in_memory)

    def test_is_augmented_where_the_training_is(self) -> None:
        augmented, plain = (
            torch.cat(list(calibration(IN_MEMORY, replace(PLAIN, augment=augment), images=40)))
            for augment in (True, False)
        )
        black = (0 - IN_MEMORY.mean) / IN_MEMORY.std
        assert torch.isclose(augmented, black.view(1, -1, 1, 1)).float().mean() > 0.1  # the border that crops reach
        assert augmented.shape == plain.shape and not torch.equal(augmented, plain)


class TestProgress:
    def test_is_told_inside_an_epoch_with_what_it_has_come_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop, "TELL_EVERY_SECONDS", 0)
        told: list[tuple[int, EpochRecord]] = []
        runs = [Run(net(), data, replace(PLAIN, epochs=2)) for data in (as_it_is(), IN_MEMORY)]
        train_together(runs, moved=lambda run: told.append((run.position, run.so_far())))
        assert [position for position, _ in told] == [step for _ in range(2) for step in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)]
        assert [record for position, record in told if position == 5][::2] == runs[0].history
        assert told[0][1].epoch == 1 and told[-1][1].epoch == 2

    def test_is_told_at_most_once_a_second(self) -> None:
        told: list[float] = []
        begun = time.monotonic()
        train(Run(net(), IN_MEMORY, replace(PLAIN, epochs=30)), moved=lambda run: told.append(time.monotonic()))
        assert len(told) <= time.monotonic() - begun


def test_a_model_is_left_in_its_mode_where_the_images_to_evaluate_on_fail() -> None:
    bad = TensorDataset(IN_MEMORY.test.pixels, torch.full((20,), 2))
    data = StreamedDataset.of(bad, bad, IN_MEMORY.classes, workers=0)
    model = nn.Sequential(net().train())
    with pytest.raises(DataError, match="item 0 of the test data has the label 2"):
        accuracy(model, data.test, data.mean, data.std)
    assert all(module.training for module in model.modules())
