"""What a run's folder has lost, another file in it tells, or it is missed: nothing is taken for what it is not."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.run_facts import measured
from tests.command_line import run_here
from tests.small_needs import BASELINE, PRUNED, PRUNED_ONCE, SHIFTED, SLIMMED
from tests.small_runs import CPU, EXPERIMENT, pipeline, read

OTHERS = [
    replace(EXPERIMENT, training=replace(EXPERIMENT.training, lam=0.5)),
    replace(EXPERIMENT, pruning=replace(EXPERIMENT.pruning, delta=0.1)),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    stages.run([pipeline(folder)])
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns(".lock")))


@pytest.mark.parametrize("other", OTHERS, ids=["lam", "delta"])
def test_without_its_configuration_a_run_is_known_by_its_record(other: Experiment, run: Path, finished: Path) -> None:
    (run / "config.json").unlink()
    with pytest.raises(TrainingError, match=r"record\.json: the folder belongs to a run with"):
        pipeline(run, other)
    assert read(run / "record.json") == read(finished / "record.json") and not (run / "config.json").exists()
    stages.run([pipeline(run)])
    for name in ("config.json", "record.json"):
        assert read(run / name) == read(finished / name)


def test_a_verb_goes_on_with_a_run_whose_configuration_is_gone(run: Path) -> None:
    (run / "config.json").unlink()
    done = run_here("scratch", out=run)
    assert done.code == 0 and (run / "scratch.safetensors").exists(), done.err


def test_without_its_results_a_run_has_those_of_its_record(run: Path, finished: Path) -> None:
    (run / "results.json").unlink()
    stages.run([pipeline(run)])
    for name in ("results.json", "record.json"):
        assert read(run / name) == read(finished / name)


def test_a_configuration_without_a_setting_that_came_later_is_the_same(run: Path) -> None:
    (run / "results.json").unlink()
    configuration = read(run / "config.json")
    del configuration["training"]["cutout"]
    (run / "config.json").write_text(json.dumps(configuration))
    assert measured(run) == read(run / "record.json")["results"]


def test_a_report_shows_them_too(run: Path, tmp_path: Path) -> None:
    (run / "results.json").unlink()
    assert run_here("report", run, out=tmp_path / "report.html").code == 0


@pytest.mark.parametrize("record", [None, "{"], ids=["gone", "damaged"])
def test_results_that_nothing_tells_are_missed(record: str | None, run: Path) -> None:
    for name in ("results.json", "record.json"):
        (run / name).unlink()
    if record is not None:
        (run / "record.json").write_text(record)
    with pytest.raises(TrainingError, match=r"results\.json is gone.* pruned\.safetensors and finetuned\.safetensors"):
        pipeline(run)
    for name in ("pruned.safetensors", "finetuned.safetensors"):
        (run / name).unlink()
    (measured,) = stages.run([pipeline(run)])
    assert {"accuracy_sparse", "accuracy_pruned", "accuracy_finetuned"} <= measured["results"].keys()


def without_what_was_pruned(run: Path) -> None:
    for name in ("pruned.safetensors", "finetuned.safetensors"):
        (run / name).unlink()
    shutil.rmtree(run / "finetune")


def pruned_anew(run: Path) -> Experiment:
    """With another rule and another network, of which the record does not know."""
    without_what_was_pruned(run)
    other = replace(EXPERIMENT, pruning=replace(EXPERIMENT.pruning, flops=0.3))
    stages.prune(pipeline(run, other))
    return other


def test_a_record_of_another_network_tells_nothing(run: Path) -> None:
    other = pruned_anew(run)
    before = read(run / "record.json")
    (run / "results.json").unlink()
    with pytest.raises(TrainingError, match=r"no record\.json here tells what was measured of pruned\.safetensors"):
        pipeline(run, other)
    (run / "config.json").unlink()
    done = run_here("finetune", out=run)
    assert done.code == 1 and "config.json is gone" in done.err and read(run / "record.json") == before


def test_a_record_from_before_the_last_training_tells_nothing(run: Path) -> None:
    stages.scratch([pipeline(run)])
    (run / "results.json").unlink()
    with pytest.raises(TrainingError, match=r"pruned\.safetensors and finetuned\.safetensors and scratch\.safetensors"):
        pipeline(run)


def test_a_pruned_model_alone_is_to_bring_what_was_measured_of_it(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("config.json", "pruned.safetensors"):
        shutil.copy(run / name, tmp_path / "other")
    with pytest.raises(TrainingError, match=r"Put back a copy of it, from where pruned\.safetensors came from\.$"):
        pipeline(tmp_path / "other")
    shutil.copy(run / "results.json", tmp_path / "other")
    stages.finetune([pipeline(tmp_path / "other")])


def test_what_was_only_trained_is_told_by_its_record_too(run: Path) -> None:
    without_what_was_pruned(run)
    before = read(run / "results.json")
    (run / "results.json").unlink()
    assert pipeline(run).results == before


def test_reproducing_measures_trained_weights_of_which_nothing_is_known(tmp_path: Path) -> None:
    needs, workshop = [BASELINE, SLIMMED[1], SHIFTED], Workshop(tmp_path / "runs", tmp_path / "new", CPU, together=2)
    folders = [tmp_path / "runs" / place for place in (BASELINE.place, SLIMMED[1].trained_at)]
    run_missing([BASELINE, PRUNED_ONCE], replace(workshop, results=tmp_path / "before"))
    for folder in folders:
        for path in [folder / "results.json", folder / "record.json", *folder.glob("*ed.safetensors")]:
            path.unlink(missing_ok=True)
    run_missing(needs, workshop)
    assert read(tmp_path / "new" / f"{BASELINE.place}.json")["results"]["accuracy_sparse"] > 0.5
    assert sorted(workshop.results.rglob("*.json")) == sorted(workshop.results / f"{one.place}.json" for one in needs)


def test_one_record_that_cannot_be_written_costs_no_other(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "runs", tmp_path / "results", CPU, together=2)
    run_missing(SLIMMED, replace(workshop, results=tmp_path / "before"), scratch=False)
    folder = workshop.runs / SLIMMED[0].place
    (folder / "record.json").unlink()
    (folder / "provenance.json").write_text("{")
    with pytest.raises(OtpruneError, match=r"provenance\.json: is not what a run writes"):
        run_missing(SLIMMED, workshop, scratch=False)
    assert list(workshop.results.rglob("*.json")) == [workshop.results / f"{SLIMMED[1].place}.json"]


def test_what_is_trained_from_scratch_is_in_the_record_of_the_run_too(tmp_path: Path) -> None:
    run_missing([PRUNED], Workshop(tmp_path / "runs", tmp_path / "results", CPU))
    assert "accuracy_scratch" in read(tmp_path / "runs" / PRUNED.place / "record.json")["results"]


@pytest.mark.parametrize("name", ["sparse", "pruned", "finetuned"])
def test_a_model_that_is_cut_short_is_not_taken_for_one(name: str, run: Path) -> None:
    path = run / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if name == "sparse":
        without_what_was_pruned(run)
    with pytest.raises(
        TrainingError, match=f"{name}.*is damaged, as by a copy that was broken off.*copy of it, or delete it"
    ):
        stages.run([pipeline(run)])
    path.unlink()
    stages.run([pipeline(run)])


def test_where_it_cannot_be_made_anew_nobody_is_told_to_delete_it(run: Path) -> None:
    (run / "sparse.safetensors").unlink()
    path = run / "pruned.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"broken off\. Put back a copy of it\.$"):
        stages.run([pipeline(run)])
