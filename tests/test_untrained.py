"""What is pruned goes on without the weights that it was made of, and never beside those of another training."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.iterate import iterate
from otprune.experiments.news import Nobody
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Silent
from otprune.experiments.reproduce.jobs import jobs
from otprune.experiments.reproduce.needed import Kind, Needed
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.side_by_side import run_missing_in
from otprune.experiments.reproduce.trainings import goes_on_by_itself, to_train
from otprune.experiments.reproduce.workshop import Workshop
from otprune.training.run import EpochRecord, Run
from tests.checkpoint_files import assert_same_file
from tests.command_line import run_here
from tests.small_needs import BASELINE, BY_ISTA, PRUNED, PRUNED_ONCE, ROUNDS, SHIFTED, SLIMMED, slimmed
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
    with pytest.raises(TrainingError, match=r"pruned\.safetensors and finetune came of trained weights"):
        stages.run([run])


def test_a_teacher_that_is_gone_can_be_done_without(tmp_path: Path) -> None:
    folder = broken_off(tmp_path / "run", TAUGHT).folder
    shutil.rmtree(folder / "finetune")
    leave_behind_what_was_trained(folder)
    for verb in ("finetune", "run"):
        done = run_here(verb, out=folder)
        assert done.code == 1 and "give --distill 0" in done.err
    assert run_here("finetune", out=folder, distill=0).code == 0


def test_what_was_made_of_what_was_pruned_is_as_good_a_sign(tmp_path: Path) -> None:
    run = pipeline(tmp_path)
    stages.run([run])
    leave_behind_what_was_trained(tmp_path)
    (tmp_path / "pruned.safetensors").unlink()
    with pytest.raises(TrainingError, match=r"finetune and finetuned\.safetensors came of trained weights"):
        stages.run([run])


def test_checkpoints_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    run = broken_off(tmp_path / "run", TAUGHT)
    (run.folder / "sparse.safetensors").unlink()
    for path in (run.folder / "train").iterdir():
        path.write_bytes(b"damaged")
    with pytest.raises(TrainingError, match="came of trained weights that are gone"):
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
        f"{folder}: pruned.safetensors and finetune came of trained weights that are gone, and another training may "
        "come to others. Put sparse.safetensors back, or use another folder.\n"
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
    with pytest.raises(TrainingError, match="came of trained weights that are gone"):
        made([SHIFTED], recorded)
    assert without_seconds(recorded / "runs" / PRUNED_ONCE.place) == before


@pytest.mark.parametrize("processes", [1, 2])
def test_what_needs_weights_that_are_gone_costs_no_other_record(processes: int, recorded: Path) -> None:
    asked = [PRUNED_ONCE, Needed(slimmed(0.75), Kind.PRUNED), SHIFTED, BASELINE]
    workshop = Workshop(recorded / "runs", recorded / "results", CPU, say=lambda _: None)
    in_two = partial(run_missing_in, 2, jobs(asked, workshop), workshop, scratch=True, listener=Nobody())
    with pytest.raises(OtpruneError, match="came of trained weights that are gone") as refused:
        {1: partial(run_missing, asked, workshop), 2: in_two}[processes]()
    assert str(refused.value).count("weights that are gone") == 1
    found = sorted((recorded / "results").rglob("*.json"))
    assert found == sorted(recorded / "results" / f"{needed.place}.json" for needed in (PRUNED_ONCE, BASELINE))


def test_what_ista_trained_goes_on_by_itself_too(tmp_path: Path) -> None:
    made(BY_ISTA, tmp_path)
    folder, *records = tmp_path / "runs" / BY_ISTA[0].place, *(tmp_path / "results").rglob("*.json")
    leave_behind_what_was_trained(folder)
    for lost in (folder / "finetuned.safetensors", *records):
        lost.unlink()
    assert made(BY_ISTA, tmp_path) == set() and all(record.exists() for record in records) and len(records) == 2


def test_a_teacher_is_of_no_use_to_what_is_not_fine_tuned(tmp_path: Path) -> None:
    """As the recipe `best` is not, which would distill."""
    stages.run([pipeline(tmp_path / "runs" / PRUNED.place, TAUGHT)])
    folder = tmp_path / "runs" / PRUNED.place
    (folder / "finetuned.safetensors").unlink()
    shutil.rmtree(folder / "finetune", ignore_errors=True)
    leave_behind_what_was_trained(folder)
    workshop = Workshop(tmp_path / "runs", tmp_path / "results", CPU)
    taught = replace(PRUNED, experiment=TAUGHT)
    assert [goes_on_by_itself(replace(taught, finetuned=tuned), workshop) for tuned in (True, False)] == [False, True]


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
