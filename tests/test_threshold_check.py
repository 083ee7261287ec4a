"""Thresholds shifted up and down: what stays, what it costs, what it scores; broken off, it goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import otprune as ot
from otprune.cli import app
from otprune.errors import ThresholdError, TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Pruning
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.thresholds import SHIFTS, verify_thresholds
from tests.small_runs import EXPERIMENT, BreakOff, assert_same_weights, loaded, pipeline, read

WANTED = (-6, -5.5, -1, -0.1, 0, 0.1, 0.3, 5)


class Checked(NamedTuple):
    """A finished run, and what its shifted thresholds came to."""

    run: Pipeline
    shifts: dict[float, dict[str, Any]]

    def folder(self, shift: float) -> Path:
        return self.run.folder / "threshold-check" / str(self.shifts[shift]["folder"])


def check(run: Pipeline, shifts: Sequence[float] = WANTED, **options: Any) -> Checked:
    record = verify_thresholds(run, shifts, **options)
    assert record == read(run.folder / "threshold-check" / "record.json")
    return Checked(run, {found["shift"]: found for found in record["shifts"]})


def trained(folder: Path) -> Pipeline:
    run = pipeline(folder)
    stages.train([run])
    return run


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    run = pipeline(tmp_path_factory.mktemp("checked"))
    stages.run([run])
    return check(run)


def test_what_bounds_the_run_bounds_its_shifted_thresholds(tmp_path: Path) -> None:
    bounded = Pruning(rule="ns", ratio=0.4, max_layer_ratio=0.5, round_to=4)
    run = pipeline(tmp_path, replace(EXPERIMENT, pruning=bounded))
    stages.train([run])
    found = check(run, (0, 1), finetune_epochs=0).shifts
    assert all(kept % 4 == 0 for one in found.values() for kept in one["kept"].values())
    assert list(found[1]["kept"].values()) == [8, 12]


def test_what_a_latency_was_met_by_is_no_part_of_the_check(tmp_path: Path) -> None:
    run = pipeline(tmp_path, replace(EXPERIMENT, pruning=Pruning(latency="1s")))
    stages.train([run])
    verify_thresholds(run, (0,), finetune_epochs=0)
    assert read(run.folder / "threshold-check" / "record.json")["experiment"]["pruning"]["latency"] is None


def test_thresholds_that_are_not_shifted_are_those_of_the_run(checked: Checked) -> None:
    unshifted, results = checked.shifts[0], checked.run.results
    for name in ("pruned", "finetuned"):
        path = checked.folder(0) / f"{name}.safetensors"
        assert_same_weights(loaded(path), loaded(checked.run.folder / f"{name}.safetensors"))
    for stage in ("pruned", "recalibrated", "finetuned_1", "finetuned"):
        assert unshifted[f"accuracy_{stage}"] == results[f"accuracy_{stage}"]
    assert unshifted["kept"] == {layer["name"]: layer["kept"] for layer in results["layers"]}
    assert unshifted["cost_after"] == results["cost_after"] and unshifted["cost_before"] == results["cost_before"]


def test_every_shift_keeps_what_is_not_below_its_thresholds(checked: Checked) -> None:
    sparse = loaded(checked.run.folder / "sparse.safetensors")
    for shift, found in checked.shifts.items():
        for name, kept in found["kept"].items():
            gammas = sparse.get_parameter(f"{name}.weight").detach().double().abs()
            limit = ot.optimal_threshold(gammas) * 10**shift
            assert kept == max(int((gammas >= limit).sum()), 1)
        assert found["channels"] == sum(found["kept"].values())
    assert checked.shifts[-6]["channels"] > checked.shifts[0]["channels"] > checked.shifts[0.3]["channels"]
    assert checked.shifts[5]["kept"] == {"1": 1, "4": 1}


def test_higher_thresholds_cost_less(checked: Checked) -> None:
    found = list(checked.shifts.values())
    assert [one["shift"] for one in found] == sorted(WANTED)
    for kind in ("flops", "parameters"):
        shares = [one[kind] for one in found]
        assert shares == sorted(shares, reverse=True)
        assert shares == [one["cost_after"][kind] / one["cost_before"][kind] for one in found]
    assert found[0]["accuracy_recalibrated"] > 0.9 > found[-1]["accuracy_recalibrated"]


def test_equal_plans_are_trained_once(checked: Checked) -> None:
    places = {path.name for path in (checked.run.folder / "threshold-check").iterdir()} - {"record.json"}
    assert places == {found["folder"] for found in checked.shifts.values()}
    assert checked.shifts[-6]["folder"] == checked.shifts[-5.5]["folder"]
    assert str(checked.shifts[-6]["folder"]).startswith("shift-6-")
    assert len(places) == len({tuple(found["kept"].items()) for found in checked.shifts.values()}) < len(WANTED)


def test_one_broken_off_goes_on_and_ends_the_same(checked: Checked, tmp_path: Path) -> None:
    run = trained(tmp_path)
    for shift, epoch in ((-6, 1), (0, 2), (0.3, 1)):
        moment = BreakOff(checked.folder(shift).name, "finetune", epoch)
        with pytest.raises(KeyboardInterrupt):
            check(run, report=moment, save_every=0.05, together=2)
        assert not (run.folder / "threshold-check" / "record.json").exists()
    again = check(pipeline(tmp_path), together=3)
    assert again.shifts == checked.shifts
    for shift in WANTED:
        ours, theirs = (each.folder(shift) / "finetuned.safetensors" for each in (again, checked))
        assert_same_weights(loaded(ours), loaded(theirs))


def test_fine_tuning_can_be_left_out_and_done_later(tmp_path: Path) -> None:
    run = trained(tmp_path)
    found = check(run, (0, 0.3), finetune_epochs=0)
    assert all("accuracy_finetuned" not in one for one in found.shifts.values())
    assert all(0 < one["accuracy_recalibrated"] <= 1 for one in found.shifts.values())
    pruned = {shift: (found.folder(shift) / "pruned.safetensors").stat().st_mtime_ns for shift in found.shifts}
    later = check(pipeline(tmp_path), (0, 0.3), finetune_epochs=1)
    assert all(one["accuracy_finetuned"] == one["accuracy_finetuned_1"] > 0.5 for one in later.shifts.values())
    assert pruned == {s: (later.folder(s) / "pruned.safetensors").stat().st_mtime_ns for s in later.shifts}


def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"has no sparse\.safetensors yet: make it with otprune train"):
        verify_thresholds(pipeline(tmp_path), (0,))
    run = trained(tmp_path)
    with pytest.raises(TrainingError, match="no shift of the thresholds was given"):
        verify_thresholds(run, ())
    with pytest.raises(ThresholdError, match="log10 must lie in"):
        verify_thresholds(run, (float("nan"),))


def test_the_usual_shifts_are_those_asked_for() -> None:
    assert SHIFTS == (-6, -5, -4, -3, -2, -1, -0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.3, 0.4, 0.5)


def test_the_verb_checks_a_run_and_shows_each_shift(tmp_path: Path) -> None:
    trained(tmp_path)
    flags = ["--out", str(tmp_path), "--shifts=-1,0,0.3", "--finetune-epochs", "1", "--device", "cpu"]
    done = CliRunner().invoke(app, ["verify-threshold", *flags])
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.startswith("│")]
    found = read(tmp_path / "threshold-check" / "record.json")["shifts"]
    assert [row[1] for row in rows] == ["-1", "+0", "+0.3"]
    for row, one in zip(rows, found, strict=True):
        for stage in ("pruned", "recalibrated", "finetuned"):
            assert f"{one[f'accuracy_{stage}']:.2%}" in row
        share = one["cost_after"]["flops"] / one["cost_before"]["flops"]
        assert f"({share:.1%})" in row and str(one["channels"]) in row


def test_a_run_that_was_pruned_for_a_budget_is_in_no_row(tmp_path: Path) -> None:
    for_half = replace(EXPERIMENT, pruning=replace(EXPERIMENT.pruning, flops=0.5))
    for place, experiment, expected in ((tmp_path / "a", EXPERIMENT, False), (tmp_path / "b", for_half, True)):
        stages.train([pipeline(place, experiment)])
        flags = ["--out", str(place), "--shifts=0", "--finetune-epochs", "0", "--device", "cpu"]
        done = CliRunner().invoke(app, ["verify-threshold", *flags])
        assert ("the run itself was pruned for flops=0.5" in done.output) is expected, done.output


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [(["--shifts", "0,much"], 2, "'much' is not a number"), ([], 1, "holds no run: begin one with otprune train")],
    ids=["no number", "no run"],
)
def test_the_verb_refuses_what_it_cannot_do(flags: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["verify-threshold", "--out", str(tmp_path), "--device", "cpu", *flags])
    assert done.exit_code == code and said in done.output
    assert list(tmp_path.iterdir()) == []
