"""What is pruned goes on without the weights that it was made of, and never beside those of another training."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.iterate import iterate
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Silent
from otprune.experiments.reproduce.jobs import jobs
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.running import Workshop, run_missing, to_train
from otprune.training.run import EpochRecord, Run
from tests.checkpoint_files import assert_same_file
from tests.command_line import run_here
from tests.small_needs import PRUNED_ONCE, ROUNDS, SHIFTED, SLIMMED
from tests.small_runs import CPU, EXPERIMENT, BreakOff, pipeline, read

MODELS = ("pruned.safetensors", "finetuned.safetensors")
TAUGHT = replace(EXPERIMENT, finetuning=replace(EXPERIMENT.finetuning, distill=0.5))


class Stages(Silent):
    """Which stages trained, by folder."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        self.seen.add((pipeline.folder.name, stage))


def broken_off(folder: Path, experiment: Experiment = EXPERIMENT) -> Pipeline:
    """A run that was ended while it was fine-tuned."""
    with pytest.raises(KeyboardInterrupt):
        stages.run([pipeline(folder, experiment)], BreakOff(folder.name, "finetune", 1), save_every=0)
    return pipeline(folder, experiment)


def leave_behind_what_was_trained(folder: Path) -> None:
    (folder / "sparse.safetensors").unlink()
    shutil.rmtree(folder / "train", ignore_errors=True)


def without_seconds(folder: Path) -> dict[str, Any]:
    return {name: value for name, value in read(folder / "results.json").items() if name != "seconds"}


def test_a_pruned_run_ends_as_ever_without_what_was_trained(tmp_path: Path) -> None:
    stages.run([pipeline(tmp_path / "whole")])
    run, seen = broken_off(tmp_path / "run"), Stages()
    leave_behind_what_was_trained(run.folder)
    stages.run([run], seen)
    assert seen.seen == {("run", "finetune")} and not (run.folder / "sparse.safetensors").exists()
    for name in MODELS:
        assert_same_file(run.folder / name, tmp_path / "whole" / name)
    assert without_seconds(run.folder) == without_seconds(tmp_path / "whole")


def test_another_run_beside_it_is_trained(tmp_path: Path) -> None:
    run, seen = broken_off(tmp_path / "run"), Stages()
    leave_behind_what_was_trained(run.folder)
    stages.run([run, pipeline(tmp_path / "other")], seen)
    assert seen.seen == {("run", "finetune"), ("other", "train"), ("other", "finetune")}


def test_where_the_trained_model_teaches_it_is_asked_for(tmp_path: Path) -> None:
    run = broken_off(tmp_path / "run", TAUGHT)
    leave_behind_what_was_trained(run.folder)
    with pytest.raises(TrainingError, match=r"pruned\.safetensors was made of trained weights that are gone"):
        stages.run([run])


def test_checkpoints_give_the_same_weights_again(tmp_path: Path) -> None:
    run = broken_off(tmp_path / "run", TAUGHT)
    shutil.move(run.folder / "sparse.safetensors", tmp_path / "before.safetensors")
    stages.run([run])
    assert_same_file(run.folder / "sparse.safetensors", tmp_path / "before.safetensors")


def test_the_command_does_not_put_another_training_beside_what_was_pruned(tmp_path: Path) -> None:
    folder = broken_off(tmp_path / "run").folder
    leave_behind_what_was_trained(folder)
    before = without_seconds(folder)
    done = run_here("train", out=folder)
    assert done.code == 1 and done.err == (
        f"{folder}: pruned.safetensors was made of trained weights that are gone, and another training may come to "
        "others. Put sparse.safetensors back, or use another folder.\n"
    )
    assert without_seconds(folder) == before and not (folder / "sparse.safetensors").exists()


def test_rounds_go_on_from_the_pruned_model_of_the_last(tmp_path: Path) -> None:
    asked = {"rounds": 2, "save_every": 0}
    with pytest.raises(KeyboardInterrupt):
        iterate(EXPERIMENT, tmp_path, pipeline(tmp_path.with_name("data")).source, CPU, **asked, report=_in_round_two())
    for name in ("round-1", "round-2"):
        leave_behind_what_was_trained(tmp_path / name)
    seen = Stages()
    record = iterate(EXPERIMENT, tmp_path, pipeline(tmp_path.with_name("data")).source, CPU, **asked, report=seen)
    assert seen.seen == {("round-2", "finetune")} and len(record["rounds"]) == 2


def _in_round_two() -> BreakOff:
    return BreakOff("round-2", "finetune", 1)


def made(needs: Sequence[Needed], folder: Path) -> set[tuple[str, str]]:
    seen = Stages()
    workshop = Workshop(folder / "runs", folder / "results", CPU, seen, together=2, say=lambda _: None)
    run_missing(needs, workshop, scratch=False)
    return seen.seen


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Networks that were pruned from one training, which is gone, as are the records and what was fine-tuned."""
    made([PRUNED_ONCE, *SLIMMED, ROUNDS], tmp_path)
    for path in tmp_path.glob("runs/**/sparse.safetensors"):
        leave_behind_what_was_trained(path.parent)
    for path in tmp_path.glob("runs/**/finetuned.safetensors"):
        path.unlink()
    shutil.rmtree(tmp_path / "results")
    return tmp_path


def test_records_are_made_of_what_was_pruned(recorded: Path) -> None:
    needs = [PRUNED_ONCE, *SLIMMED, ROUNDS]
    workshop = Workshop(recorded / "runs", recorded / "results", CPU)
    assert to_train(needs, workshop) == [] and {job.after for job in jobs(needs, workshop)} == {""}
    assert made(needs, recorded) == set()
    assert len(list((recorded / "results").rglob("*.json"))) == len(needs)


def test_what_needs_the_weights_is_refused_beside_what_was_pruned(recorded: Path) -> None:
    before = without_seconds(recorded / "runs" / PRUNED_ONCE.place)
    with pytest.raises(TrainingError, match="made of trained weights that are gone"):
        made([SHIFTED], recorded)
    assert without_seconds(recorded / "runs" / PRUNED_ONCE.place) == before


def test_what_was_pruned_is_not_given_the_weights_of_another_training(recorded: Path) -> None:
    """One of two that share a training is gone as a whole, and so is the run that was trained."""
    kept, lost = (recorded / "runs" / needed.place for needed in SLIMMED)
    before = without_seconds(kept)["accuracy_sparse"]
    for folder in (lost, recorded / "runs" / PRUNED_ONCE.place):
        shutil.rmtree(folder)
    seen = made(SLIMMED, recorded)
    assert (PRUNED_ONCE.place.rpartition("/")[2], "train") in seen
    assert without_seconds(kept)["accuracy_sparse"] == before and not (kept / "sparse.safetensors").exists()
    assert (lost / "sparse.safetensors").exists()
