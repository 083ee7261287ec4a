"""Truncated or garbled JSON in the folder of a run: made anew where it can be, or else named, with what to do."""

import json
import shutil
from pathlib import Path

import pytest

from otprune.errors import PlanError
from otprune.experiments.folder import MADE_BY
from otprune.plan import PruningPlan
from tests.chaos.sameness import differences
from tests.command_line import Done, results, run_here

SETTINGS = {
    "model": "tests.small_runs:net",
    "data": "digits",
    "device": "cpu",
    "lam": 0.3,
    "proximal": None,
    "epochs": 2,
    "finetune_epochs": 1,
}
DAMAGES = {"truncated": lambda content: content[: len(content) // 2], "garbled": lambda content: b"\x00\xff" + content}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run_here("run", **SETTINGS, out=folder).code == 0
    return folder


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest, whole: Path, tmp_path: Path) -> "Damage":
    return Damage(shutil.copytree(whole, tmp_path / "run"), request.param)


class Damage:
    """A copy of a finished run, one of whose files is damaged."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind

    def of(self, name: str) -> Path:
        path = self.folder / name
        path.write_bytes(DAMAGES[self.kind](path.read_bytes()))
        return path

    def run_again(self) -> Done:
        return run_here("run", **SETTINGS, out=self.folder)


@pytest.mark.parametrize("name", ["record.json", "data.json"])
def test_what_follows_from_the_rest_is_made_anew(name: str, damage: Damage, whole: Path) -> None:
    damage.of(name)
    assert damage.run_again().code == 0
    assert not list(differences(damage.folder, whole))


def test_results_that_are_deleted_are_those_of_the_record(damage: Damage, whole: Path) -> None:
    path = damage.of("results.json")
    _assert_told(damage.run_again(), path, "delete it: what record.json has of it is taken instead")
    path.unlink()
    assert damage.run_again().code == 0
    assert not list(differences(damage.folder, whole))


def test_results_are_measured_again_when_what_is_said_to_be_deleted_is(damage: Damage, whole: Path) -> None:
    for name in ("results.json", "record.json"):
        damage.of(name).unlink()
    missed = damage.run_again()
    assert missed.code == 1 and "or delete pruned.safetensors and finetuned.safetensors, too" in missed.err
    for name in MADE_BY:
        (damage.folder / name).unlink(missing_ok=True)
    assert damage.run_again().code == 0
    again, before = results(damage.folder), results(whole)
    for measured in (again, before):
        measured.pop("seconds")
    assert again.keys() ^ before.keys() == {"accuracy_finetuned_1"}  # of an epoch that is over for good
    assert again.items() <= before.items()


def test_a_configuration_is_written_again_by_the_command_that_began_the_run(damage: Damage, whole: Path) -> None:
    path = damage.of("config.json")
    for done in (damage.run_again(), run_here("finetune", out=damage.folder)):
        _assert_told(done, path, "delete it and give the command that began the run again")
    path.unlink()
    assert damage.run_again().code == 0
    assert not list(differences(damage.folder, whole))


def test_what_stages_ran_on_can_be_deleted(damage: Damage, whole: Path) -> None:
    (damage.folder / "finetuned.safetensors").unlink()
    path = damage.of("provenance.json")
    _assert_told(damage.run_again(), path, "Delete it")
    path.unlink()
    assert damage.run_again().code == 0
    assert [found.partition(" ")[0] for found in differences(damage.folder, whole)] == ["provenance.json"]


def test_a_record_of_exports_can_be_deleted(damage: Damage) -> None:
    assert _export(damage.folder).code == 0
    path = damage.of("export.json")
    _assert_told(_export(damage.folder), path, "Delete it, and export again")
    path.unlink()
    assert _export(damage.folder).code == 0
    assert json.loads(path.read_text())["files"].keys() == {"export/finetuned.safetensors"}


def test_a_plan_names_its_file(damage: Damage) -> None:
    """No verb needs it: the plan that counts is inside the model."""
    path = damage.of("plan.json")
    with pytest.raises(PlanError, match=str(path)):
        PruningPlan.load(path)
    assert damage.run_again().code == 0


def _export(folder: Path) -> Done:
    return run_here("export", folder, to="safetensors")


def _assert_told(done: Done, path: Path, what: str) -> None:
    assert done.code == 1 and done.err.startswith(f"{path}: ") and what in done.err and done.err.count("\n") == 1
