"""Records in the shape of today and of before; what they lack; and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from otprune.errors import TrainingError
from otprune.experiments.experiment import Experiment
from otprune.experiments.iterate import Restart
from otprune.experiments.reproduce.needed import Needed, baseline, pruned, rounds, shifted
from otprune.experiments.reproduce.records import Records, normalised
from otprune.experiments.reproduce.rows import rows
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.undamaged import Undamaged
from otprune.experiments.reproduce.workshop import Workshop
from tests import made_records

OT = pruned("cifar10", "vgg14", 1e-4)
BEFORE = {
    "model": "vgg14",
    "data": "cifar10",
    "training": {"epochs": 160, "lam": 1e-4, "decay_at": [0.5, 0.75]},
    "delta": 1e-3,
    "calibration_images": 10_000,
    "finetune_epochs": 40,
    "finetune_rate": 1e-3,
    "report_after": [1, 3],
}
DAMAGES = [
    ("", "it is not JSON: Expecting value"),
    ("{", "it is not JSON: Expecting property name"),
    ("{}", "it has no experiment"),
    ("[]", "it has no experiment"),
    ('{"experiment": {"training": {}}, "results": 3}', "it.results is 3"),
    ('{"experiment": {"training": {"lamb": 1}}}', "its experiment: there is no setting training.lamb"),
]


def test_settings_of_before_read_as_those_of_today() -> None:
    assert Experiment.from_dict(normalised(BEFORE)) == OT.experiment
    other = {**BEFORE, "finetune_epochs": 7, "delta": 0.01}
    read = Experiment.from_dict(normalised(other))
    assert (read.finetuning.epochs, read.pruning.delta) == (7, 0.01)
    today = OT.experiment.to_dict()
    assert normalised(today) == today


def test_a_record_is_found_in_its_place_and_belongs_to_its_experiment(tmp_path: Path) -> None:
    made_records.write(tmp_path, [OT])
    found = Records(tmp_path).find(OT)
    assert found is not None and found.place == "cifar10/vgg14/lam1e-4-seed0" and found.results["accuracy_sparse"] > 0.9
    assert Records(tmp_path).find(pruned("cifar10", "vgg14", 1e-4, seed=1)) is None
    longer = replace(OT.experiment, training=replace(OT.experiment.training, epochs=3))
    made_records.write(tmp_path, [Needed(longer, OT.kind)])
    with pytest.raises(TrainingError, match=r"lam1e-4-seed0.json: has training.epochs=3, and the run asked for 160"):
        Records(tmp_path).find(OT)


def test_a_record_of_another_kind_is_refused(tmp_path: Path) -> None:
    asked = shifted("cifar10", "vgg14", 1e-4)
    made_records.write(tmp_path, [asked], lambda needed: made_records.record(OT))
    with pytest.raises(TrainingError, match="has no shifts"):
        Records(tmp_path).find(asked)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("flops", "many", r"rounds\[1\]\.flops is 'many'"),
        ("flops", 0, r"rounds\[1\] has no FLOPs or parameters left"),
        ("accuracy", "x", r"rounds\[1\]\.accuracy is 'x'"),
        ("accuracy", 1.01, r"rounds\[1\]\.accuracy is 1\.01, not a number from 0 to 1"),
        ("accuracy", float("nan"), r"rounds\[1\]\.accuracy is nan, not a number from 0 to 1"),
        ("round", 3, "it has a round 3 where round 2 belongs"),
        ("results", {}, r"rounds\[1\]\.results has no layers"),
        ("results", {"layers": [], "accuracy_pruned": -0.1}, r"rounds\[1\]\.results\.accuracy_pruned is -0\.1"),
    ],
)
def test_a_damaged_round_is_named(name: str, value: object, why: str, tmp_path: Path) -> None:
    asked = rounds("cifar10", "vgg14", 1e-4, Restart.FINETUNED)
    content = made_records.record(asked)
    content["rounds"][1][name] = value
    made_records.write(tmp_path, [asked], lambda needed: content)
    with pytest.raises(TrainingError, match=why):
        Records(tmp_path).find(asked)


def with_rounds(folder: Path, shown: slice, remark: str = "") -> str:
    """What a record lacks that has some of its rounds."""
    asked = rounds("cifar10", "vgg14", 1e-4, Restart.FINETUNED)
    content = made_records.record(asked)
    content |= {"rounds": content["rounds"][shown], "remark": remark}
    made_records.write(folder, [asked], lambda needed: content)
    return Records(folder).lacks(asked)


def test_rounds_that_are_missing_are_lacking_unless_the_last_removed_nothing(tmp_path: Path) -> None:
    assert with_rounds(tmp_path, slice(5)) == ""
    assert with_rounds(tmp_path, slice(4)) == "with fewer than 5 rounds"
    assert with_rounds(tmp_path, slice(4), remark="round 4 removes nothing: no further round was begun") == ""
    with pytest.raises(TrainingError, match=r"seed0\.json: has lost its rounds\. Get it back"):
        with_rounds(tmp_path, slice(0))


def test_a_round_that_was_not_trained_is_lacking(tmp_path: Path) -> None:
    asked = rounds("cifar10", "vgg14", 1e-4, Restart.SCRATCH)
    content = made_records.record(asked)
    content["rounds"][4]["accuracy"] = None
    made_records.write(tmp_path, [asked], lambda needed: content)
    assert Records(tmp_path).lacks(asked) == "not trained"


@pytest.mark.parametrize("value", [1.5, -0.01, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["accuracy_finetuned", "accuracy_held_out_sparse"])
def test_an_accuracy_that_no_network_has_is_refused_by_name(name: str, value: float, tmp_path: Path) -> None:
    content = made_records.record(OT)
    content["results"][name] = value
    made_records.write(tmp_path, [OT], lambda needed: content)
    with pytest.raises(TrainingError, match=rf"lam1e-4-seed0\.json: .*{name} is {value}, not a number from 0 to 1"):
        Records(tmp_path).find(OT)


@pytest.mark.parametrize("lost", ["shift of 0", "accuracy_sparse", "accuracy_finetuned"])
def test_shifts_that_lost_what_they_are_compared_with_are_refused_by_name(lost: str, tmp_path: Path) -> None:
    asked = shifted("cifar10", "vgg14", 1e-4)
    content = made_records.record(asked)
    content["shifts"] = [one for one in content["shifts"] if one["shift"] or lost != "shift of 0"]
    for part in (content, content["shifts"][-1]):
        part.pop(lost, None)
    made_records.write(tmp_path, [asked], lambda needed: content)
    with pytest.raises(TrainingError, match=rf"shifted-lam1e-4-seed0\.json: has lost its {lost}\. Get it back"):
        Records(tmp_path).find(asked)


def test_rounds_that_start_otherwise_are_refused(tmp_path: Path) -> None:
    asked = rounds("cifar10", "vgg14", 1e-4, Restart.SCRATCH)
    other = {**made_records.record(asked), "restart": "finetuned"}
    made_records.write(tmp_path, [asked], lambda needed: other)
    with pytest.raises(TrainingError, match="has restart=finetuned, and the run asked for scratch"):
        Records(tmp_path).find(asked)


def test_a_file_of_something_else_is_passed_by(tmp_path: Path) -> None:
    made_records.write(tmp_path, [OT])
    (tmp_path / "cifar10/vgg14/latency.json").write_text('{"milliseconds": 3}')
    (tmp_path / "demo.json").write_text("{")
    assert list(Records(tmp_path).all) == [OT.place]


@pytest.mark.parametrize(("content", "why"), DAMAGES)
def test_a_damaged_record_is_named_where_it_is_needed_and_nowhere_else(content: str, why: str, tmp_path: Path) -> None:
    other, gammas = pruned("cifar10", "vgg14", 1e-4, seed=7), pruned("cifar10", "vgg14", 2e-4, gammas=True)
    made_records.write(tmp_path, [OT, gammas])
    path = tmp_path / f"{other.place}.json"
    path.write_text(content)
    told = rf"lam1e-4-seed7\.json: is no record of a run: {why}.*\. Get it back .*, or remove it: it then counts as not"
    for asked in (Records(tmp_path).find, Records(tmp_path).lacks, Records(tmp_path).of_any_seed):
        with pytest.raises(TrainingError, match=told):
            asked(other)
    assert Records(tmp_path).lacks(OT) == Records(tmp_path).lacks(gammas) == ""
    path.unlink()
    assert Records(tmp_path).lacks(other) == "not run"


def test_everything_is_not_asked_for_with_a_file_that_nobody_can_read(tmp_path: Path) -> None:
    made_records.write(tmp_path, [OT])
    (tmp_path / "cifar10/vgg14/broken.json").write_text("{")
    assert Records(tmp_path).find(OT)
    with pytest.raises(TrainingError, match=r"broken\.json: is no record of a run: it is not JSON"):
        _ = Records(tmp_path).all


def test_what_is_lacking_is_said(tmp_path: Path) -> None:
    asked = replace(OT, scratch=True)
    assert Records(tmp_path).lacks(asked) == "not run"
    made_records.write(tmp_path, [OT])
    assert Records(tmp_path).lacks(OT) == "" and Records(tmp_path).lacks(asked) == "not trained from scratch"
    made_records.write(tmp_path, [asked])
    assert Records(tmp_path).lacks(asked) == ""


def test_gammas_may_come_from_another_seed_but_not_from_another_pruning(tmp_path: Path) -> None:
    asked = replace(OT, gammas=True)
    assert Records(tmp_path).lacks(asked) == "not run"
    path = tmp_path / f"{OT.place}.json"
    made_records.write(tmp_path, [OT, pruned("cifar10", "vgg14", 1e-4, ratio=0.5), pruned("cifar10", "vgg14", 2e-4)])
    record = json.loads(path.read_text())
    del record["results"]["gammas"]
    path.write_text(json.dumps(record))
    assert Records(tmp_path).lacks(asked) == "γ not recorded" and Records(tmp_path).with_gammas(asked) is None
    made_records.write(tmp_path, [pruned("cifar10", "vgg14", 1e-4, seed=5)])
    found = Records(tmp_path).with_gammas(asked)
    assert found is not None and found.experiment.training.seed == 5 and Records(tmp_path).lacks(asked) == ""


def test_a_damaged_seed_matters_to_gammas_only_where_no_other_has_them(tmp_path: Path) -> None:
    asked, other = replace(OT, gammas=True), pruned("cifar10", "vgg14", 1e-4, seed=1)
    made_records.write(tmp_path, [OT])
    (tmp_path / f"{other.place}.json").write_text("{")
    assert Records(tmp_path).lacks(asked) == ""
    (tmp_path / f"{OT.place}.json").rename(tmp_path / f"{pruned('cifar10', 'vgg14', 1e-4, seed=2).place}.json")
    found = Records(tmp_path).with_gammas(asked)
    assert found is not None and found.place.endswith("-seed2")
    (tmp_path / f"{found.place}.json").unlink()
    for look in (Records(tmp_path).with_gammas, Records(tmp_path).lacks):
        with pytest.raises(TrainingError, match=r"lam1e-4-seed1\.json: is no record of a run"):
            look(asked)


def test_no_other_seed_is_run_for_gammas_where_the_place_is_taken_by_another_experiment(tmp_path: Path) -> None:
    longer = replace(OT.experiment, training=replace(OT.experiment.training, epochs=3))
    made_records.write(tmp_path, [Needed(longer, OT.kind)])
    with pytest.raises(TrainingError, match=r"lam1e-4-seed0\.json: has training.epochs=3, and the run asked for 160"):
        run_missing([replace(OT, gammas=True)], Workshop(tmp_path / "runs", tmp_path, torch.device("cpu")))
    assert not (tmp_path / "runs").exists()


def test_records_that_are_refused_are_passed_over_and_named(tmp_path: Path) -> None:
    asked = shifted("cifar10", "vgg14", 1e-4)
    made_records.write(tmp_path, [OT])
    made_records.write(tmp_path, [asked], lambda needed: made_records.record(OT))
    broken = pruned("cifar10", "vgg14", 1e-4, seed=1)
    (tmp_path / f"{broken.place}.json").write_text("{")
    records = Undamaged(tmp_path)
    assert records.find(asked) is None and [one.place for one in records.of_any_seed(OT)] == [OT.place]
    assert records.refused.keys() == {asked.place, broken.place}
    assert "has no shifts" in records.refused[asked.place] and "is not JSON" in records.refused[broken.place]
    assert {OT.place, asked.place} == Undamaged(tmp_path).all.keys()


def test_every_record_has_a_place_of_its_own() -> None:
    """Two tables may need one record, but no place is needed for two experiments."""
    needs = [needed for row in rows().values() for needed in row.needs]
    found: dict[str, Needed] = {}
    for needed in needs:
        other = found.setdefault(needed.place, needed)
        assert (other.experiment, other.kind, other.restart) == (needed.experiment, needed.kind, needed.restart)
    assert len(found) > 100


def test_one_training_serves_everything_that_is_pruned_from_it() -> None:
    asked = [OT, pruned("cifar10", "vgg14", 1e-4, ratio=0.3), shifted("cifar10", "vgg14", 1e-4)]
    asked += [rounds("cifar10", "vgg14", 1e-4, restart, 0.5) for restart in Restart]
    assert {needed.trained_at for needed in asked} == {"cifar10/vgg14/lam1e-4-seed0"}
    assert len({needed.place for needed in asked}) == len(asked)
    assert baseline("cifar10", "vgg14").trained_at == "cifar10/vgg14/lam0-seed0"


def test_the_records_of_this_project_are_read() -> None:
    found = Records(Path(__file__).parent.parent / "results").find(OT)
    assert found is not None and found.experiment == OT.experiment
