"""Stages that are broken off, or that cannot write."""

import json
import time
from pathlib import Path

import pytest
import torch

from otprune.errors import CheckpointError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.reporting import Silent
from otprune.files import write_atomically
from otprune.training.run import EpochRecord, Run, Training
from tests.command_line import DIGITS, run_here


def test_a_killed_stage_has_noted_the_time_it_took_so_far(tmp_path: Path) -> None:
    noted = []

    class Look(Silent):
        def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
            noted.append(json.loads(pipeline.results_file.read_text())["seconds"]["train"])

    asked = Experiment("digits_net", "digits", training=Training(epochs=3, augment=False))
    pipeline = Pipeline(asked, tmp_path, open_data("digits"), torch.device("cpu"))
    begun = time.perf_counter()
    stages.train([pipeline], Look(), save_every=0)
    assert 0 < noted[0] < noted[1] < noted[2] < pipeline.results["seconds"]["train"] < time.perf_counter() - begun


def test_what_broke_a_stage_off_is_told_even_where_nothing_can_be_written(tmp_path: Path) -> None:
    class Break(Silent):
        def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
            pipeline.results_file.mkdir()
            raise CheckpointError("Make room.")

    asked = Experiment("digits_net", "digits", training=Training(epochs=1, augment=False))
    with pytest.raises(CheckpointError, match="Make room"):
        stages.train([Pipeline(asked, tmp_path, open_data("digits"), torch.device("cpu"))], Break())


def test_a_folder_that_cannot_be_written_to_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_here("train", **DIGITS, epochs=0, out=tmp_path / "file" / "run")
    assert done.code == 1 and str(tmp_path / "file" / "run") in done.err and "give the same command again" in done.err


def test_a_full_disk_is_told_with_the_file_that_does_not_fit(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=str(tmp_path / "weights")):
            write_atomically(tmp_path / "weights", bytes(101))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_file_that_can_neither_be_written_nor_removed_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    """A name to which nothing can be added stands for a disk that is mounted read-only: there is no neighbour."""
    path = tmp_path / ("n" * 250)
    with pytest.raises(OSError, match=r"n{250}") as refused:
        write_atomically(path, b"content")
    assert refused.value.filename == str(path)
