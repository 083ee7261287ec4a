"""A training broken off at any moment, in any way, goes on and ends as if nothing had happened."""

import json
import os
import random
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from otprune.training import loop
from otprune.training.checkpoint import checkpoints
from otprune.training.loop import train
from otprune.training.stopping import Interrupted
from tests.checkpoint_files import SHORT, assert_same_end, assert_same_file, files
from tests.processes import (
    COMMAND,
    command,
    finish,
    run_pipeline_in,
    start,
    train_in,
    train_until_the_disk_is_full,
    training_run,
)


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
