"""What trainings leave in their folders, and one that breaks off on its own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from otprune.training.checkpoint import checkpoints
from otprune.training.holding import LOCK
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run
from tests.processes import (
    TRAINING,
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
