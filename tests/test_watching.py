"""Epochs that could have been picked are measured on the test images, where that is asked for, and decide nothing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from otprune.cli import reproduce
from otprune.experiments.reproduce.needed import Kind, Needed
from otprune.experiments.reproduce.rows import Row, printed
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.watching import BY_EPOCH, Watching
from otprune.experiments.reproduce.workshop import Workshop
from otprune.training.run import Training
from tests.small_runs import CPU, EXPERIMENT, FINETUNING

SMALL = replace(
    EXPERIMENT,
    training=Training(epochs=4, lam=0.3, proximal=True, augment=False, decay_at=(0.5,)),
    finetuning=replace(FINETUNING, epochs=3),
)
PRUNED = Needed(SMALL, Kind.PRUNED)
BASELINE = Needed(replace(SMALL, training=replace(SMALL.training, lam=0.0)), Kind.BASELINE)


def made(folder: Path, watched: dict[str, str]) -> list[dict[str, Any]]:
    """What is recorded of both."""
    watching = Watching(folder / "runs", watched)
    workshop = Workshop(folder / "runs", folder / "results", CPU, watching, say=lambda text: None)
    run_missing([PRUNED, BASELINE], workshop)
    return [json.loads((folder / "results" / f"{one.place}.json").read_text())["results"] for one in (PRUNED, BASELINE)]


def test_every_epoch_at_the_last_rate_of_the_stage_is_measured(tmp_path: Path) -> None:
    pruned, unpruned = made(tmp_path, {PRUNED.place: "finetune", BASELINE.place: "train"})
    assert list(pruned[BY_EPOCH]) == ["finetune"] and list(pruned[BY_EPOCH]["finetune"]) == ["1", "2", "3"]
    assert pruned[BY_EPOCH]["finetune"]["3"] == pruned["accuracy_finetuned"]
    assert pruned[BY_EPOCH]["finetune"]["1"] == pruned["accuracy_finetuned_1"]
    assert list(unpruned[BY_EPOCH]) == ["train"] and list(unpruned[BY_EPOCH]["train"]) == ["3", "4"]
    assert unpruned[BY_EPOCH]["train"]["4"] == unpruned["accuracy_sparse"]


def test_being_watched_changes_nothing_else(tmp_path: Path) -> None:
    watched = made(tmp_path / "watched", {PRUNED.place: "finetune", BASELINE.place: "finetune"})
    alone = made(tmp_path / "alone", {})
    assert BY_EPOCH in watched[0] and BY_EPOCH not in watched[1]
    for one, other in zip(watched, alone, strict=True):
        assert {**one, BY_EPOCH: None, "seconds": None} == {**other, BY_EPOCH: None, "seconds": None}


def test_what_the_paper_prints_is_watched() -> None:
    """Six unpruned networks and ResNet-20's; eleven seeds by two rules on two data sets, and the headline's network."""
    watched = printed()
    trained = [place for place, stage in watched.items() if stage == "train"]
    assert len(trained) == 7 and "cifar10/resnet20/lam0-seed0" in trained
    assert all(place.endswith("/lam0-seed0") for place in trained)
    finetuned = [place for place, stage in watched.items() if stage == "finetune"]
    assert len([place for place in finetuned if "/vgg14/" in place]) == 44
    assert "cifar100/densenet121/lam2e-4-seed0" in finetuned and len(finetuned) == 49


def test_the_command_watches_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "printed", lambda: {PRUNED.place: "finetune"})
    workshop = Workshop(tmp_path / "runs", tmp_path / "results", CPU, say=lambda text: None)
    small = Row("small", "A small row")
    reproduce._run(small, [PRUNED], scratch=False, workshop=workshop, processes=1, screen=Console(quiet=True))
    results = json.loads((tmp_path / "results" / f"{PRUNED.place}.json").read_text())["results"]
    assert list(results[BY_EPOCH]["finetune"]) == ["1", "2", "3"]
