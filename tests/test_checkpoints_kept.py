"""Which checkpoints are kept, and which of them a run goes on from or refuses."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from otprune.errors import CheckpointError
from otprune.training.checkpoint import checkpoints, newest
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run
from tests.checkpoint_files import SHORT, assert_same_end, assert_same_file, broken_off, contents, files
from tests.processes import (
    DIGITS,
    net,
    training_run,
)


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
    with caplog.at_level(logging.WARNING):  # whatever others have set it to
        run = training_run(tmp_path, SHORT)
    assert run.epoch == 0
    assert caplog.text.count("is damaged") == 2 and "going on from the start" in caplog.text


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


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "no number": ({"lam": "much"}, ".*lam"),
    "a step before the first": ({"sums": {"loss": 0.0, "hits": 0, "steps": -1, "failed": -1}}, "it has step -1"),
    "a step after the last": ({"sums": {"loss": 0.0, "hits": 0, "steps": 10**6, "failed": -1}}, "it has step 1000000"),
    "too many epochs": (
        {"history": [vars(EpochRecord(n, 0.1, 0.0, 1.0, 0.5)) for n in range(1, 100)]},
        "it has the epochs",
    ),
    "an epoch twice": ({"history": [vars(EpochRecord(1, 0.1, 0.0, 1.0, 0.5))] * 2}, r"it has the epochs \[1, 1\]"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_refused_checkpoint_leaves_the_model_as_it_was(what: str, tmp_path: Path) -> None:
    broken_off(tmp_path, after=1)
    found = checkpoints(tmp_path)[-1]
    tensors, metadata = contents(found)
    changed, said = IMPOSSIBLE[what]
    strange = {"training": json.dumps(metadata["training"]), "state": json.dumps(metadata["state"] | changed)}
    found.write_bytes(safetensors.torch.save(tensors, strange))
    model = net()
    with pytest.raises(CheckpointError, match=f"{found}: is no checkpoint of this training: {said}"):
        Run(model, DIGITS, SHORT, tmp_path)
    torch.testing.assert_close(model.state_dict(), net().state_dict(), rtol=0, atol=0)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(1)}, tmp_path / "at-00001-0000001.safetensors")
    with pytest.raises(CheckpointError, match="is no checkpoint of a training"):
        training_run(tmp_path)


def test_what_is_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    """A pipe that nobody writes to would be read for ever."""
    os.mkfifo(tmp_path / "at-00001-0000001.safetensors")
    assert newest(tmp_path) is None
