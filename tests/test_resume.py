"""A training broken off at any moment, in any way, goes on and ends as if nothing had happened."""

import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

from otprune.errors import CheckpointError, TrainingError
from otprune.training import loop
from otprune.training.checkpoint import checkpoints
from otprune.training.failures import RunsFailed
from otprune.training.holding import LOCK
from otprune.training.loop import train, train_together
from otprune.training.run import EpochRecord, Run
from otprune.training.stopping import Interrupted
from tests.processes import (
    COMMAND,
    DIGITS,
    TRAINING,
    command,
    finish,
    net,
    run_pipeline_in,
    start,
    train_in,
    train_until_the_disk_is_full,
    training_run,
)


def contents(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, "pt") as file:
        metadata = {key: json.loads(value) for key, value in (file.metadata() or {}).items() if value[:1] in "[{"}
        return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118


def assert_same_file(left: Path, right: Path) -> None:
    """The same tensors, bit for bit, and the same data beside them; where in a file they lie is left to chance."""
    (ours, our_metadata), (theirs, their_metadata) = contents(left), contents(right)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert our_metadata == their_metadata


def assert_same_end(left: Path, right: Path) -> None:
    """The last checkpoints hold the same weights, momenta and history."""
    last = [checkpoints(folder)[-1] for folder in (left, right)]
    assert last[0].name == last[1].name
    tensors, metadata = contents(last[0])
    assert {name.partition(".")[0] for name in tensors} == {"model", "momentum"} and metadata["state"]["history"]
    assert_same_file(*last)


def files(folder: Path) -> list[Path]:
    """What a training leaves, besides the lock that keeps others out."""
    return sorted(path for path in folder.iterdir() if path.name != LOCK)


class Undisturbed:
    """Where trainings that nobody disturbed ended."""

    def __init__(self, folder: Path) -> None:
        self.training, self.pipeline = folder / "training", folder / "pipeline"
        finish(train_in, self.training)
        finish(run_pipeline_in, self.pipeline)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


def steps_saved(folder: Path) -> int:
    """How many of the 420 steps the newest checkpoint has behind it."""
    names = ["at-0-0", *(path.stem for path in checkpoints(folder))]
    _, epoch, step = names[-1].split("-")
    return int(epoch) * 21 + int(step)


def kill(process: BaseProcess) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_a_training_killed_ten_times_ends_the_same(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """At the start, inside a step, inside the writing of a checkpoint, between epochs: as chance has it."""
    chance = random.Random(0)
    for moment in sorted(chance.sample(range(300), 10)):
        process = start(train_in, tmp_path)
        while process.is_alive() and steps_saved(tmp_path) < moment:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        kill(process)
    finish(train_in, tmp_path)
    assert_same_end(tmp_path, undisturbed.training)
    assert files(tmp_path) == checkpoints(tmp_path)  # beginnings of files that kills left are gone


def test_a_pipeline_killed_in_any_stage_ends_the_same(undisturbed: Undisturbed, tmp_path: Path) -> None:
    chance = random.Random(0)
    for appears in ("config.json", "train/at-*", "sparse.safetensors", "plan.json", "pruned.safetensors", "finetune/*"):
        process = start(run_pipeline_in, tmp_path)
        while process.is_alive() and not list(tmp_path.glob(appears)):
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        kill(process)
    finish(run_pipeline_in, tmp_path)
    assert_same_pipeline(tmp_path, undisturbed.pipeline)


def assert_same_pipeline(left: Path, right: Path) -> None:
    assert_same_end(left / "train", right / "train")
    assert_same_end(left / "finetune", right / "finetune")
    for name in ("sparse.safetensors", "pruned.safetensors", "finetuned.safetensors"):
        assert_same_file(left / name, right / name)
    assert (left / "plan.json").read_bytes() == (right / "plan.json").read_bytes()
    results = [json.loads((folder / "record.json").read_text())["results"] for folder in (left, right)]
    for result in results:
        assert result.pop("seconds")["train"] > 0
    assert results[0] == results[1]


def wait_until_training(pid: int) -> None:
    """Until the process handles SIGTERM, which only a training does."""
    for _ in range(3000):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:")).split()[1]
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("the training did not begin within half a minute")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for the moment when a training begins")
def test_ctrl_c_saves_says_how_to_go_on_and_the_same_command_goes_on(undisturbed: Undisturbed, tmp_path: Path) -> None:
    folder, said = tmp_path / "run", tmp_path / "said"
    arguments = ((*COMMAND, "--out", str(folder)), tmp_path / "shown", said)
    process = start(command, *arguments)
    wait_until_training(process.pid)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert said.read_text() == f"stopped and saved in {folder / 'train'}: give the same command again to go on\n"
    (saved,) = checkpoints(folder / "train")
    assert not (folder / "sparse.safetensors").exists()

    damaged = saved.with_name("at-00001-0000020.safetensors")
    damaged.write_bytes(saved.read_bytes()[:-1])
    process = start(command, *arguments)
    process.join()
    assert process.exitcode == 0
    assert f"{damaged} is damaged" in said.read_text() and f"going on from {saved}" in said.read_text()
    assert_same_pipeline(folder, undisturbed.pipeline)


def test_a_full_disk_leaves_the_last_good_checkpoint(undisturbed: Undisturbed, tmp_path: Path) -> None:
    folder, message = tmp_path / "run", tmp_path / "message"
    process = start(train_until_the_disk_is_full, folder, message)
    process.join()
    assert process.exitcode == 1
    left = checkpoints(folder)
    assert [path.name for path in left] == ["at-00002-0000020.safetensors", "at-00002-0000021.safetensors"]
    assert files(folder) == left
    assert "at-00003-0000001.safetensors: cannot be written: File too large" in message.read_text()
    assert f"The last good checkpoint is {left[-1]}." in message.read_text()
    finish(train_in, folder)
    assert_same_end(folder, undisturbed.training)


SHORT = replace(TRAINING, epochs=3)


class Broken(Exception):
    """Ends a training where nothing else does."""


def broken_off(folder: Path, after: int) -> None:
    """Train with a checkpoint every step, and stop without a word after some epochs."""

    def stop(run: Run, epoch: EpochRecord) -> None:
        if epoch.epoch == after:
            raise Broken

    with pytest.raises(Broken):
        train(training_run(folder, SHORT), stop, save_every=0)


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    seen = []

    def look(run: Run, epoch: EpochRecord) -> None:
        seen.append([path.name for path in files(tmp_path)])

    train(training_run(tmp_path, SHORT), look, save_every=0)
    assert seen == [[f"at-0000{epoch}-00000{step}.safetensors" for step in (20, 21)] for epoch in range(3)]
    assert [path.name[:8] for path in checkpoints(tmp_path)] == ["at-00002", "at-00003"]


def test_checkpoints_come_at_the_interval_asked_for(tmp_path: Path) -> None:
    train(training_run(tmp_path / "seldom", SHORT), save_every=3600)
    assert [path.name for path in checkpoints(tmp_path / "seldom")] == ["at-00003-0000000.safetensors"]


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_truncated_checkpoint_is_passed_over_for_the_one_before(
    size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(training_run(tmp_path / "whole", SHORT))
    broken_off(tmp_path / "cut", after=2)
    before, newest = checkpoints(tmp_path / "cut")
    newest.write_bytes(newest.read_bytes()[:size])
    with caplog.at_level(logging.WARNING):
        run = training_run(tmp_path / "cut", SHORT)
    assert f"{newest} is damaged" in caplog.text and f"going on from {before}" in caplog.text
    assert checkpoints(tmp_path / "cut") == [before]
    train(run, save_every=0)
    assert_same_end(tmp_path / "cut", tmp_path / "whole")
    assert len(checkpoints(tmp_path / "cut")) == 2


def test_where_every_checkpoint_is_damaged_it_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken_off(tmp_path, after=1)
    for path in checkpoints(tmp_path):
        path.write_bytes(b"")
    run = training_run(tmp_path, SHORT)
    assert run.epoch == 0
    assert caplog.text.count("is damaged") == 2 and "going on from the start" in caplog.text


@pytest.mark.parametrize("presses", [1, 3])
def test_the_same_run_goes_on_inside_the_epoch_that_was_broken_off(
    presses: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: Ctrl-C, then train again with what is at hand, be it saved or not."""
    whole, run = training_run(tmp_path / "whole", SHORT), training_run(None, SHORT)
    train(whole)
    monkeypatch.setattr(loop, "TELL_EVERY_SECONDS", 0)
    for _ in range(presses):
        with pytest.raises(Interrupted):
            train(run, moved=lambda run: signal.raise_signal(signal.SIGINT) if run.position % 13 == 0 else None)
        assert run.position % 13 == 0 and not run.done
    train(run)
    torch.testing.assert_close(run.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    assert run.history == whole.history


def test_a_run_saved_as_it_was_found_is_found_the_same(tmp_path: Path) -> None:
    broken_off(tmp_path, after=1)
    found = checkpoints(tmp_path)[-2]
    checkpoints(tmp_path)[-1].unlink()
    copied = shutil.copy(found, tmp_path / "before.safetensors")
    training_run(tmp_path, SHORT).save()
    assert checkpoints(tmp_path) == [found]
    assert_same_file(found, copied)


NEWER = ("schedule", "cutout")


def test_a_checkpoint_from_before_there_were_schedules_and_cutout_is_gone_on_with(tmp_path: Path) -> None:
    broken_off(tmp_path, after=1)
    newest = checkpoints(tmp_path)[-1]
    tensors, metadata = contents(newest)
    older = {name: value for name, value in metadata["training"].items() if name not in NEWER}
    assert len(older) == len(metadata["training"]) - len(NEWER)
    metadata = {"training": json.dumps(older), "state": json.dumps(metadata["state"])}
    newest.write_bytes(safetensors.torch.save(tensors, metadata))
    resumed = training_run(tmp_path, SHORT)
    assert resumed.history or resumed._sums is not None
    with pytest.raises(CheckpointError, match="belongs to a training with schedule=steps, not cosine"):
        training_run(tmp_path, replace(SHORT, schedule="cosine"))


def wider() -> nn.Module:
    model = net()
    assert isinstance(model, nn.Sequential)
    model[-1] = nn.Linear(54, 11)
    return model


@pytest.mark.parametrize(
    ("differing", "said"),
    [
        (lambda folder: training_run(folder, replace(SHORT, lam=0.5)), "lam=0.001, not 0.5"),
        (lambda folder: training_run(folder, replace(SHORT, decay_at=())), r"decay_at=\[0.5, 0.75\], not \[\]"),
        (lambda folder: Run(net().double(), DIGITS, SHORT, folder), "model.0.weight is .* float32, not .* float64"),
        (lambda folder: Run(wider(), DIGITS, SHORT, folder), r"model.6.weight is \(10, 54\) .* not \(11, 54\)"),
        (lambda folder: Run(nn.Sequential(net()), DIGITS, SHORT, folder), "model.0.0.weight is missing"),
        (
            lambda folder: Run(net(), replace(DIGITS, train=DIGITS.train[torch.arange(700)]), SHORT, folder),
            "images=1347, not 700",
        ),
    ],
    ids=["λ", "schedule", "precision", "width", "names", "data"],
)
def test_a_checkpoint_of_another_configuration_is_refused(
    differing: Callable[[Path], Run], said: str, tmp_path: Path
) -> None:
    broken_off(tmp_path, after=1)
    with pytest.raises(CheckpointError, match=f"{checkpoints(tmp_path)[-1]}: belongs to .*{said}.* Use another folder"):
        differing(tmp_path)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(1)}, tmp_path / "at-00001-0000001.safetensors")
    with pytest.raises(CheckpointError, match="is no checkpoint of a training"):
        training_run(tmp_path)


class Fuse(nn.Module):
    """Counts batches, and at a certain one gives a loss, or only a gradient, that is not a number."""

    def __init__(self, burns_at: int, what: str) -> None:
        super().__init__()
        self.burns_at, self.what = burns_at, what
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        if self.seen != self.burns_at:
            return x
        return x * torch.nan if self.what == "loss" else x + 0 * (x - x.detach()).sqrt()


@pytest.mark.parametrize("save_every", [0, 3600])
def test_a_loss_that_is_no_number_stops_with_its_step_and_keeps_the_last_good_checkpoint(
    save_every: float, tmp_path: Path
) -> None:
    model = nn.Sequential(net(), Fuse(burns_at=30, what="loss"))
    said = rf"^{tmp_path}: the loss is not a finite number at step 30 \(epoch 2\)"
    with pytest.raises(TrainingError, match=said) as stopped:
        train(Run(model, DIGITS, SHORT, tmp_path), save_every=save_every)
    left = checkpoints(tmp_path)
    if save_every:
        assert not left and "No checkpoint was written before" in str(stopped.value)
        return
    assert [path.name for path in left] == [f"at-00001-000000{step}.safetensors" for step in (7, 8)]
    assert f"The last good checkpoint is {left[-1]}" in str(stopped.value)
    tensors, _ = contents(left[-1])
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


@pytest.mark.parametrize("folder", [True, False], ids=["saved", "not saved"])
def test_weights_that_are_no_numbers_are_never_saved(folder: bool, tmp_path: Path) -> None:
    """The last step's loss is a number, but its gradient is not: no later loss tells."""
    last = Fuse(burns_at=63, what="gradient")
    run = Run(nn.Sequential(net(), last), DIGITS, SHORT, tmp_path if folder else None)
    with pytest.raises(TrainingError, match="is not finite after step 63"):
        train(run, save_every=0)
    assert [path.name[:16] for path in checkpoints(tmp_path)] == ["at-00002-0000019", "at-00002-0000020"] * folder


def test_ctrl_c_after_the_last_step_is_not_forgotten(tmp_path: Path) -> None:
    """What would follow the training does not begin."""

    def press(run: Run, epoch: EpochRecord) -> None:
        if epoch.epoch == SHORT.epochs:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=f"saved in {tmp_path}: give the same command again"):
        train(training_run(tmp_path, SHORT), press)
    assert training_run(tmp_path, SHORT).done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step_to_end_and_a_second_one_does_not(number: signal.Signals, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    presses = 1

    def press(run: Run, epoch: EpochRecord) -> None:
        for _ in range(presses):
            signal.raise_signal(number)

    runs = [training_run(tmp_path / name, SHORT) for name in ("a", "b")]
    with pytest.raises(Interrupted, match=f"saved in {tmp_path / 'a'}, {tmp_path / 'b'}"):
        train_together(runs, lambda run, epoch: press(run, epoch) if run is runs[1] else None)
    for run in runs:
        assert [path.name for path in checkpoints(run.folder or tmp_path)] == ["at-00001-0000001.safetensors"]
    presses = 2
    with pytest.raises(KeyboardInterrupt) as stopped:
        train(training_run(tmp_path / "a", SHORT), press)
    assert not isinstance(stopped.value, Interrupted)
    assert signal.getsignal(number) is before


def test_without_a_folder_ctrl_c_says_that_nothing_was_saved() -> None:
    with pytest.raises(Interrupted, match="nothing was saved"):
        train(Run(net(), DIGITS, SHORT), lambda run, epoch: signal.raise_signal(signal.SIGINT))


@pytest.mark.parametrize("save_every", [0, 3600])
def test_of_runs_side_by_side_one_that_fails_is_set_aside(save_every: float, tmp_path: Path) -> None:
    """The others end as they do alone; then the error comes, with the run that it is of."""
    alone = training_run(None, SHORT)
    train(alone)
    first, last = (training_run(tmp_path / name, SHORT) for name in ("first", "last"))
    burning = Run(nn.Sequential(net(), Fuse(burns_at=30, what="loss")), DIGITS, SHORT, tmp_path / "burning")
    with pytest.raises(RunsFailed, match=rf"^{tmp_path / 'burning'}: the loss .* at step 30 .*folder\.$") as failed:
        train_together([first, burning, last], save_every=save_every)
    assert [run for run, _ in failed.value.errors] == [burning] and not burning.done
    for run in (first, last):
        torch.testing.assert_close(run.model.state_dict(), alone.model.state_dict(), rtol=0, atol=0)
        assert run.folder is not None and checkpoints(run.folder)[-1].name == "at-00003-0000000.safetensors"
