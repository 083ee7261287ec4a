"""A disk that is full, and a folder that is read-only: said in one line, nothing lost, nothing half-written."""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from otprune.deploy.exported import to_torch
from otprune.deploy.openvino import to_openvino
from otprune.errors import DeployError
from otprune.experiments import stages
from otprune.experiments.board import board
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report, Silent
from otprune.training.run import EpochRecord, Run
from tests.chaos.commands import CASES
from tests.chaos.looking import damaged, exported, finished, leftovers, lost
from tests.chaos.naming import files
from tests.command_line import Done, done
from tests.processes import command, command_with_little_room, command_with_permissions
from tests.small_runs import pipeline

STAGES = ("train", "prune", "finetune", "export-safetensors")
needs_permissions = pytest.mark.skipif(
    os.name != "posix" or (sys.platform != "linux" and os.geteuid() == 0), reason="permissions do not count"
)
FITS_NO_MODEL = 8_000  # bytes, which are enough for every JSON


def ended(target: Callable[..., None], name: str, folder: Path, *others: object) -> Done:
    """How a command of the long run of kills ends."""
    return done(target, (*CASES[name].arguments, str(folder)), *others)


def test_a_full_disk_in_any_stage_loses_nothing_and_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in STAGES:
        before = finished(folder)
        failed = ended(command_with_little_room, name, folder, FITS_NO_MODEL)
        assert failed.code == 1 and "Traceback" not in failed.err
        assert "safetensors: " in failed.err and "ile too large" in failed.err
        assert failed.err.endswith(
            ("give the same command again.\n", "give the same command again to go on from there.\n")
        )
        assert finished(folder) == before and not exported(folder)
        assert not list(damaged(folder)) and not leftovers(folder)
        assert ended(command, name, folder).code == 0
        assert not lost(before, folder)
    assert exported(folder).keys() == {"export/finetuned.safetensors"}


@contextmanager
def room_for(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 5000, 30_000])
@pytest.mark.parametrize(
    ("write", "name", "error"), [(to_torch, "net.pt2", OSError), (to_openvino, "net.xml", DeployError)]
)
def test_a_full_disk_is_an_error_of_its_own_in_every_runtime(
    write: Callable[..., float], name: str, error: type[Exception], size: int, tmp_path: Path
) -> None:
    """Some of them would end the whole process, or tell of an error of their own."""
    (tmp_path / name).write_bytes(b"old")
    with room_for(size), pytest.raises(error, match=name):
        write(nn.Conv2d(3, 512, 3), torch.zeros(1, 3, 8, 8), tmp_path / name)
    assert {path.name: path.read_bytes() for path in files(tmp_path)} == {name: b"old"}


class OnAFullDisk(Silent):
    """Another report, which has room for nothing."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        with room_for(10):
            self.report.epoch_ended(pipeline, stage, run, epoch)


def test_no_training_ends_because_its_curves_cannot_be_written(tmp_path: Path) -> None:
    said: list[str] = []
    with board(said.append) as events:
        stages.train([pipeline(tmp_path / "run")], OnAFullDisk(events))
    assert said == ["nothing more is written for TensorBoard: File too large"]
    assert (tmp_path / "run" / "sparse.safetensors").exists()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    inside = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for place in inside:
        place.chmod(0o555)
    try:
        yield
    finally:
        for place in inside:
            place.chmod(0o755)


@needs_permissions
def test_in_a_read_only_folder_what_is_done_can_be_read_and_nothing_is_changed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert ended(command, "train", folder).code == 0
    before = {path: path.read_bytes() for path in files(folder)}
    with read_only(folder):
        again, refused = (ended(command_with_permissions, name, folder) for name in ("train", "prune"))
    assert again.code == 0, again.err
    assert refused.code == 1 and refused.err == (
        f"{folder / 'results.json'}: permission denied. "
        "What was finished is kept: mend this, then give the same command again.\n"
    )
    assert {path: path.read_bytes() for path in files(folder)} == before
    assert ended(command_with_permissions, "prune", folder).code == 0


@needs_permissions
def test_a_run_cannot_begin_in_a_read_only_folder(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with read_only(tmp_path / "kept"):
        refused = ended(command_with_permissions, "train", tmp_path / "kept" / "run")
    assert refused.code == 1 and refused.err.startswith(f"{tmp_path / 'kept' / 'run'}: permission denied.")
