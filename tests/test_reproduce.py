"""Runs that are missing are made, once, from as few trainings as possible; what is recorded is never run again."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otprune.errors import TrainingError
from otprune.experiments.reporting import Silent
from otprune.experiments.reproduce import made_images
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.workshop import Workshop
from otprune.training.run import EpochRecord, Run
from tests.small_needs import BASELINE, BY_ISTA, EVERYTHING, PRUNED, PRUNED_ONCE, ROUNDS, SHIFTED, SLIMMED
from tests.small_runs import CPU


class Trainings(Silent):
    """Which trainings there were, by folder and stage."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def epoch_ended(self, pipeline: Any, stage: str, run: Run, epoch: EpochRecord) -> None:
        self.seen.add((pipeline.folder.name, stage))


def made(needs: Sequence[Needed], folder: Path, scratch: bool = True) -> tuple[set[tuple[str, str]], list[str]]:
    """Run what is missing; say which trainings there were, and what was recorded."""
    trainings, said = Trainings(), list[str]()
    workshop = Workshop(folder / "runs", folder / "results", CPU, trainings, together=2, say=said.append)
    run_missing(needs, workshop, scratch)
    return trainings.seen, said


@pytest.fixture(scope="module")
def done_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduced")
    trainings, said = made(EVERYTHING, folder)
    with_penalty = {name for name, stage in trainings if stage == "train"}
    assert with_penalty == {"lam0-seed0", "lam3e-1-seed0", "round-2", "round-3", "round-4", "round-5"} & with_penalty
    assert {"lam0-seed0", "lam3e-1-seed0", "round-2"} <= with_penalty and "round-1" not in with_penalty
    assert len(said) == len(EVERYTHING) + 2  # two of them twice: once pruned, once trained from scratch
    return folder


@pytest.fixture
def done(done_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done_once, tmp_path / "reproduced"))


def test_everything_that_is_needed_is_recorded(done: Path) -> None:
    records = Records(done / "results")
    assert [records.lacks(needed) for needed in EVERYTHING] == [""] * len(EVERYTHING)
    assert len(records.all) == len(EVERYTHING)


def test_prunings_of_one_training_differ_in_nothing_but_what_was_pruned(done: Path) -> None:
    found = [Records(done / "results").find(needed) for needed in (PRUNED, *SLIMMED)]
    results = [record.results for record in found if record]
    assert len(results) == 3 and len({one["accuracy_sparse"] for one in results}) == 1
    assert all(one["gammas"] == results[0]["gammas"] for one in results)
    assert [one.get("trained_in") for one in results] == [None, "lam3e-1-seed0", "lam3e-1-seed0"]
    assert len({one["cost_after"]["flops"] for one in results}) == 3


def test_what_needs_no_fine_tuning_is_not_fine_tuned(tmp_path: Path) -> None:
    needed = replace(PRUNED, scratch=False, finetuned=False)
    trainings, said = made([needed], tmp_path)
    records = Records(tmp_path / "results")
    assert {stage for _, stage in trainings} == {"train"} and len(said) == 1
    assert records.lacks(needed) == "" and records.lacks(replace(needed, finetuned=True)) == "not fine-tuned"
    trainings, _ = made([replace(needed, finetuned=True)], tmp_path)
    assert {stage for _, stage in trainings} == {"finetune"} and not Records(tmp_path / "results").lacks(PRUNED_ONCE)


def test_a_baseline_has_an_accuracy_and_a_cost_and_is_not_pruned(done: Path) -> None:
    found = Records(done / "results").find(BASELINE)
    assert found is not None and found.results["accuracy_sparse"] > 0.5 and found.results["cost_before"]["flops"] > 0
    assert "accuracy_pruned" not in found.results and {epoch["lam"] for epoch in found.results["training"]} == {0}


def test_rounds_go_on_from_the_shared_training(done: Path) -> None:
    found, shared = (Records(done / "results").find(needed) for needed in (ROUNDS, PRUNED))
    assert found is not None and shared is not None
    first = found.content["rounds"][0]["results"]
    assert first["accuracy_sparse"] == shared.results["accuracy_sparse"] and first["trained_in"] == "lam3e-1-seed0"
    assert len(found.content["rounds"]) >= 2


def test_shifted_thresholds_come_with_the_gammas_they_were_found_in(done: Path) -> None:
    found, shared = (Records(done / "results").find(needed) for needed in (SHIFTED, PRUNED))
    assert found is not None and shared is not None
    assert found.gammas == shared.gammas and found.content["accuracy_sparse"] == shared.results["accuracy_sparse"]


def test_what_is_recorded_is_not_run_again_even_without_its_folder(done: Path) -> None:
    shutil.rmtree(done / "runs")
    assert made(EVERYTHING, done) == (set(), [])


def test_training_from_scratch_needs_no_more_than_a_record(done: Path) -> None:
    """The weights are gone, and what was trained from scratch too: the record still tells the architecture."""
    shutil.rmtree(done / "runs")
    for needed in (PRUNED, SLIMMED[0]):
        path = done / "results" / f"{needed.place}.json"
        before = json.loads(path.read_text())
        shorter = {key: value for key, value in before["results"].items() if "scratch" not in key}
        path.write_text(json.dumps({**before, "results": shorter}))
        trainings, said = made([needed], done)
        assert {stage for _, stage in trainings} == {"scratch"} and len(said) == 1
        after = json.loads(path.read_text())
        assert 0 < after["results"]["accuracy_scratch"] <= 1 and after["provenance_scratch"]
        assert all(after["results"][key] == value for key, value in shorter.items() if key != "seconds")
        assert after["provenance"] == before["provenance"]


def test_a_record_is_not_given_what_another_run_of_the_same_settings_measured(done: Path) -> None:
    """It was made elsewhere; here the same command came to other weights."""
    path = done / "results" / f"{PRUNED.place}.json"
    record = json.loads(path.read_text())
    kept = {key: value for key, value in record["results"].items() if "scratch" not in key}
    elsewhere = {"results": {**kept, "accuracy_finetuned": 0.125}, "provenance": {**record["provenance"], "cpu": "x"}}
    path.write_text(json.dumps({**record, **elsewhere}))
    trainings, _ = made([PRUNED], done)
    assert {stage for _, stage in trainings} == {"scratch"}
    after = json.loads(path.read_text())
    assert after["results"]["accuracy_finetuned"] == 0.125 and after["provenance"]["cpu"] == "x"
    assert "accuracy_scratch" in after["results"] and (done / "runs" / f"{PRUNED.place}-from-record").exists()


def test_a_record_that_does_not_tell_its_architecture_is_refused(done: Path) -> None:
    shutil.rmtree(done / "runs")
    path = done / "results" / f"{PRUNED.place}.json"
    record = json.loads(path.read_text())
    del record["results"]["accuracy_scratch"]
    record["results"]["layers"][0]["negligible"] -= 1
    path.write_text(json.dumps(record))
    with pytest.raises(TrainingError, match="does not say which network it was pruned to"):
        made([PRUNED], done)
    assert json.loads(path.read_text()) == record


def test_without_scratch_only_that_is_left_out(tmp_path: Path) -> None:
    trainings, said = made([PRUNED], tmp_path, scratch=False)
    assert {stage for _, stage in trainings} == {"train", "finetune"} and len(said) == 1
    assert Records(tmp_path / "results").lacks(PRUNED) == "not trained from scratch"


def test_a_record_without_gammas_stays_and_another_seed_is_run(done: Path) -> None:
    asked = replace(PRUNED, scratch=False, gammas=True)
    for needed in (PRUNED, SHIFTED):
        path = done / "results" / f"{needed.place}.json"
        record = json.loads(path.read_text())
        record.pop("gammas", None)
        record.get("results", {}).pop("gammas", None)
        path.write_text(json.dumps(record))
    old = (done / "results" / f"{PRUNED.place}.json").read_text()
    _, said = made([asked], done)
    assert len(said) == 1 and "lam3e-1-seed1" in said[0]
    assert (done / "results" / f"{PRUNED.place}.json").read_text() == old
    assert Records(done / "results").lacks(asked) == "" and made([asked], done) == (set(), [])


def test_ista_warms_up_once_and_prunes_zeros_inside_blocks_alone(tmp_path: Path) -> None:
    trainings, said = made(BY_ISTA, tmp_path)
    assert {name for name, stage in trainings if stage == "train"} == {
        "ista-warm-up-seed0",
        "ista-lam5e-2-seed0",
        "ista-lam2e-1-seed0",
    }
    assert len(said) == 2 and made(BY_ISTA, tmp_path) == (set(), [])
    found = [Records(tmp_path / "results").find(needed) for needed in BY_ISTA]
    results = [record.results for record in found if record]
    kept = [sum(layer["kept"] for layer in one["layers"]) for one in results]
    assert kept[1] < kept[0]
    for one in results:
        shrunk = {layer["name"] for layer in one["layers"] if layer["kept"] < layer["channels"]}
        assert all(name.endswith("bn1") for name in shrunk)
        zeros = {name: gammas.count(0.0) for name, gammas in one["gammas"].items()}
        assert all(layer["negligible"] == zeros[layer["name"]] for layer in one["layers"])
    assert sum(zeros.values()) > 0


def test_what_has_gone_on_from_a_warm_up_needs_it_no_more(tmp_path: Path) -> None:
    made(BY_ISTA, tmp_path)
    shutil.rmtree(tmp_path / "runs" / "digits" / "digits_net" / "ista-warm-up-seed0")
    shutil.rmtree(tmp_path / "results")
    for needed in BY_ISTA:
        for path in (tmp_path / "runs" / needed.place).glob("*ed.safetensors"):
            path.unlink()
    trainings, said = made(BY_ISTA, tmp_path)
    assert not trainings and len(said) == 2


def test_the_ilsvrc_recipe_runs_on_made_images(tmp_path: Path) -> None:
    """With a small network, since the paper's take long on a CPU."""
    said: list[str] = []
    workshop = Workshop(tmp_path / "runs", tmp_path / "results", CPU, say=said.append)
    model = "tests.test_reproduce:coarse"
    made_images.run_on_made_images(workshop, [model])
    record = Records(tmp_path / "results").all[made_images.place(model)]
    assert record.experiment.data == "made-images" and record.experiment.training.decay_at == (1 / 3, 2 / 3)
    assert "accuracy_finetuned" in record.results and str(tmp_path) not in json.dumps(record.content)
    made_images.run_on_made_images(workshop, [model])
    assert len(said) == 1
    (tmp_path / "results" / f"{made_images.place(model)}.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"steps\.json: is no record of a run"):
        made_images.run_on_made_images(workshop, [model])


def coarse(num_classes: int) -> Any:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 4, 8, stride=32), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes)),
    )
