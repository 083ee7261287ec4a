"""What a run's folder has lost, another file in it tells, or it is missed: nothing is taken for what it is not."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.pipeline import Pipeline
from tests.command_line import run_here
from tests.small_runs import EXPERIMENT, pipeline, read

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


@pytest.mark.parametrize("name", ["sparse", "pruned", "finetuned"])
def test_a_model_that_is_cut_short_is_not_taken_for_one(name: str, run: Path) -> None:
    path = run / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(TrainingError, match=f"{name}.*is damaged, as by a copy that was broken off.*or delete it"):
        stages.run([pipeline(run)] if name != "sparse" else [_not_pruned(run)])
    path.unlink()
    stages.run([pipeline(run)])


def _not_pruned(run: Path) -> Pipeline:
    for name in ("pruned", "finetuned"):
        (run / f"{name}.safetensors").unlink()
    return pipeline(run)
