"""`otprune run` and `otprune sweep` from the command line, on digits: what they leave behind, and what they refuse."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import otprune as ot
from otprune import models
from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment, Finetuning
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.training.evaluation import accuracy
from otprune.training.failures import RunsFailed
from otprune.training.loop import chosen_device
from otprune.training.run import Run, Training
from tests.command_line import DIGITS, Done, flags, otprune

EPOCHS, FINETUNE_EPOCHS, SEED = 6, 3, 1
SMALL = "tests.small_runs:net"  # where any network does
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
FILES = {
    *("config.json", "data.json", "plan.json", "provenance.json", "results.json", "record.json"),
    *("sparse.safetensors", "pruned.safetensors", "finetuned.safetensors"),
    *("train", "finetune", "tensorboard", ".lock"),
}


ASKED: dict[str, object] = {"lam": 1e-2, "seed": SEED, "epochs": EPOCHS, "finetune_epochs": FINETUNE_EPOCHS}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def experiment() -> Experiment:
    training = Training(epochs=EPOCHS, lam=1e-2, seed=SEED, augment=False)
    finetuning = Finetuning(epochs=FINETUNE_EPOCHS)
    return Experiment("digits_net", "digits", training=training, finetuning=finetuning)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The whole pipeline as from a shell, where a warning is an error."""
    folder = tmp_path_factory.mktemp("runs") / "new" / "digits [1]"
    line = [sys.executable, "-W", "error", "-m", "otprune", "run", *flags({**DIGITS, **ASKED, "out": folder})]
    done = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", env=os.environ | ONE_THREAD)
    return folder, Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def record(finished: tuple[Path, Done]) -> dict[str, Any]:
    folder, done = finished
    assert done.code == 0, done.err
    found: dict[str, Any] = read(folder / "record.json")
    return found


def test_every_stage_leaves_its_file_and_the_screen_shows_the_result(
    finished: tuple[Path, Done], record: dict[str, Any]
) -> None:
    folder, done = finished
    assert {path.name for path in folder.iterdir()} == FILES
    assert f"train {folder.name}: epoch {EPOCHS}/{EPOCHS} loss" in done.out
    for stage in ("sparse", "pruned", "recalibrated", "finetuned"):
        assert f"{record['results'][f'accuracy_{stage}']:.2%}" in done.out
    results = record["results"]
    for kind in ("flops", "parameters"):
        assert f"({results['cost_after'][kind] / results['cost_before'][kind]:.1%})" in done.out
    assert f"the model is {folder / 'finetuned.safetensors'}; load it with ot.load(model, path)" in done.out
    assert done.out.startswith("settings of recipe digits, since the data is the digits; flags and --config overrule")
    assert done.err == ""


def test_the_record_says_what_was_done_with_what(finished: tuple[Path, Done], record: dict[str, Any]) -> None:
    assert record["experiment"] == experiment().to_dict() == read(finished[0] / "config.json")
    assert record["experiment"]["training"]["seed"] == SEED
    assert record["provenance"]["torch"] == torch.__version__ and record["provenance"]["otprune"]
    assert record["provenance"]["cpu"] and record["provenance"]["cores"] and record["provenance"]["gpu"] is None
    assert record["results"]["seconds"]["train"] > 0 and record["results"]["seconds"]["finetune"] > 0


def test_the_record_has_every_epoch(record: dict[str, Any]) -> None:
    training, finetuning = record["results"]["training"], record["results"]["finetuning"]
    assert [epoch["epoch"] for epoch in training] == list(range(1, EPOCHS + 1))
    assert [epoch["rate"] for epoch in training] == pytest.approx([0.1] * 3 + [0.01] * 2 + [0.001])
    assert training[-1]["loss"] < training[0]["loss"] / 2
    assert [(epoch["epoch"], epoch["rate"], epoch["lam"]) for epoch in finetuning] == [(n, 1e-3, 0) for n in (1, 2, 3)]


def test_the_record_has_what_the_saved_models_give(finished: tuple[Path, Done], record: dict[str, Any]) -> None:
    data, results, folder = open_data("digits"), record["results"], finished[0]
    names = {"sparse": "sparse", "pruned": "recalibrated", "finetuned": "finetuned"}
    loaded: dict[str, nn.Module] = {}
    for name, stage in names.items():
        loaded[name] = ot.load(models.digits_net(), folder / f"{name}.safetensors")
        found = accuracy(loaded[name], data.test, data.mean, data.std)
        assert found == pytest.approx(results[f"accuracy_{stage}"], abs=1 / len(data.test))
    assert results["accuracy_sparse"] > 0.9 and results["accuracy_finetuned"] > 0.9
    assert results["accuracy_finetuned"] == results["accuracy_finetuned_3"]
    assert 0 <= results["accuracy_finetuned_1"] <= 1 and 0 <= results["accuracy_folded"] <= 1
    for name, when in (("sparse", "before"), ("finetuned", "after")):
        assert results[f"cost_{when}"] == stages.totals(ot.cost(loaded[name], torch.zeros(1, 1, 8, 8)))


def test_the_record_has_every_layers_threshold_and_channels(
    finished: tuple[Path, Done], record: dict[str, Any]
) -> None:
    results, sparse = record["results"], ot.load(models.digits_net(), finished[0] / "sparse.safetensors")
    norms = {name: module for name, module in sparse.named_modules() if isinstance(module, nn.BatchNorm2d)}
    assert [layer["name"] for layer in results["layers"]] == list(norms)
    for layer in results["layers"]:
        gamma = norms[layer["name"]].weight.detach()
        assert layer["threshold"] == pytest.approx(ot.optimal_threshold(gamma, 1e-3), rel=1e-6)
        assert 1 <= layer["kept"] <= layer["channels"] == len(gamma)
    assert results["cost_after"]["flops"] < results["cost_before"]["flops"]
    assert sum(layer["kept"] for layer in results["layers"]) < sum(layer["channels"] for layer in results["layers"])


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_running_it_again_does_nothing_more_and_gives_the_same(
    finished: tuple[Path, Done], record: dict[str, Any]
) -> None:
    folder, first = finished
    before = times(folder)
    again = otprune("run", **ASKED, out=folder)
    assert again.code == 0
    assert times(folder) == before
    table = first.out[first.out.index("┏") :]
    assert again.out == table  # and no line of progress


def pipeline_in(folder: Path, asked: Experiment) -> Pipeline:
    return Pipeline(asked, folder, open_data("digits"), torch.device("cpu"))


def test_a_stage_is_skipped_where_its_file_is_and_done_where_it_is_not(tmp_path: Path) -> None:
    """The file comes last, so that where it is the stage's results are too."""
    training = replace(experiment().training, epochs=0)
    untrained = replace(experiment(), training=training, finetuning=Finetuning(epochs=0))
    pipeline = pipeline_in(tmp_path, untrained)
    stages.run([pipeline])
    done = times(tmp_path)

    (tmp_path / "pruned.safetensors").unlink()
    pipeline = pipeline_in(tmp_path, untrained)
    stages.run([pipeline])
    changed = {Path(path).name for path, when in times(tmp_path).items() if done.get(path) != when}
    assert changed >= {"pruned.safetensors", "plan.json"}
    assert not changed & {"sparse.safetensors", "finetuned.safetensors", "config.json"}
    assert (tmp_path / "pruned.safetensors").stat().st_mtime_ns >= (tmp_path / "results.json").stat().st_mtime_ns
    for stage, name, of_it in ((stages.finetune, "finetuned", []), (stages.train, "sparse", ["pruned"])):
        for gone in (name, *of_it):  # what is pruned stays with the weights that it was made of
            (tmp_path / f"{gone}.safetensors").unlink()
        stage([pipeline])
        measured, written = (tmp_path / "results.json").stat(), (tmp_path / f"{name}.safetensors").stat()
        assert measured.st_mtime_ns <= written.st_mtime_ns


def test_a_record_keeps_the_hardware_that_measured(finished: tuple[Path, Done], record: dict[str, Any]) -> None:
    folder, _ = finished
    elsewhere = record | {"provenance": record["provenance"] | {"cpu": "another"}}
    (folder / "record.json").write_text(json.dumps(elsewhere))
    pipeline = pipeline_in(folder, experiment())
    assert stages.record(pipeline) == elsewhere == read(folder / "record.json")
    pipeline.note(accuracy_sparse=0.5)
    assert stages.record(pipeline)["provenance"]["cpu"] != "another"
    pipeline.note(accuracy_sparse=record["results"]["accuracy_sparse"])
    assert stages.record(pipeline)["results"] == record["results"]


def test_another_configuration_in_the_same_folder_is_refused(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    before = times(folder)
    done = otprune("run", **(ASKED | {"lam": 1e-4}), out=folder)
    assert done.code == 1 and done.out == ""
    assert done.err == (
        f"{folder / 'config.json'}: the folder belongs to a run with training.lam=0.01, not 0.0001. "
        "Use another folder, or the same settings to go on with it.\n"
    )
    assert times(folder) == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "vgg15"}, "there is no model named 'vgg15'; choose one of vgg14, "),
        ({"model": "vgg14"}, "vgg14 does not run on the images of digits, which are 1×8×8"),
        ({"data": "mnist"}, "mnist is neither a folder nor one of cifar10, cifar100, digits: start the command where"),
        ({"data": "/no/where"}, "/no/where is neither a folder nor one of cifar10, cifar100, digits\n"),
        ({"device": "tpu"}, "there is no device named 'tpu'; choose cpu, cuda or auto"),
        ({"lam": "-1"}, "--lam must be a finite number and at least 0, not -1.0"),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused_and_claims_no_folder(wrong: dict[str, str], message: str, tmp_path: Path) -> None:
    done = otprune("run", **wrong, out=tmp_path / "run")
    assert done.code == 1 and done.out == ""
    assert done.err.startswith(message) and done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_asked_for_where_there_is_none_is_refused(tmp_path: Path) -> None:
    done = otprune("run", device="cuda", out=tmp_path / "run")
    assert done.code == 1
    assert done.err == "no GPU was found for --device cuda: use --device cpu, or check the driver with nvidia-smi\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["cpu:x", "cuda:", "tpu", "cuda:1x"])
def test_a_device_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(TrainingError, match=f"^there is no device named '{name}'; choose cpu, cuda"):
        chosen_device(name)


def test_a_gpu_beyond_the_last_is_refused() -> None:
    with pytest.raises(TrainingError, match="no GPU was found for --device cuda:99"):
        chosen_device("cuda:99")


def test_results_that_are_damaged_are_named(finished: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text("{")
    with pytest.raises(TrainingError, match=f"{tmp_path / 'run' / 'results.json'}: is not what a run writes"):
        pipeline_in(tmp_path / "run", experiment())


def test_a_sweep_is_the_same_runs_side_by_side(tmp_path: Path) -> None:
    """A λ among others gives what it gives alone; each has its folder, record and row."""
    short: dict[str, object] = {"model": SMALL, "epochs": 1, "finetune_epochs": 1}
    swept = {**short, "lam": "1e-3, 1e-2", "seeds": 1}
    done = otprune("sweep", **swept, out=tmp_path / "sweep")
    assert done.code == 0, done.err
    runs, summaries = {"lam1e-3-seed0", "lam1e-2-seed0"}, {"summary.json", "summary.md", ".lock"}
    assert {path.name for path in (tmp_path / "sweep").iterdir()} == runs | summaries
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("│")] == ["0.001", "0.01"]
    assert otprune("sweep", **swept, together=1, out=tmp_path / "one by one").code == 0
    assert otprune("run", **short, lam="1e-2", seed=0, out=tmp_path / "alone").code == 0
    folders = ("sweep/lam1e-2-seed0", "one by one/lam1e-2-seed0", "alone")
    records = [read(tmp_path / name / "record.json") for name in folders]
    assert [record["results"].pop("seconds")["train_side_by_side"] for record in records] == [2, 1, 1]
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize(
    ("lam", "said"),
    [
        ("1e-4,big", "'big' is not a number"),
        (",", "there is no number in it"),
        ("1e-4,1e-3,0.0001", "must differ, and 1e-4 and"),
        ("1e-4,1e-4", "must differ"),
    ],
)
def test_a_sweep_over_what_is_no_number_or_the_same_twice_is_refused(lam: str, said: str, tmp_path: Path) -> None:
    done = otprune("sweep", lam=lam, out=tmp_path / "sweep")
    assert done.code == 2
    assert said in done.err and "Traceback" not in done.err


def test_a_run_of_a_sweep_that_fails_is_set_aside_and_the_others_finish(tmp_path: Path) -> None:
    short: dict[str, object] = {"model": SMALL, "epochs": 1, "finetune_epochs": 1}
    swept = {**short, "lam": "1e30,1e-4,1e-3", "together": 2}
    done = otprune("sweep", **swept, out=tmp_path)
    assert done.code == 1
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("│")] == ["0.0001", "0.001"]
    assert done.err.startswith(f"{tmp_path / 'lam1e30-seed0' / 'train'}: ") and done.err.count("\n") == 1
    for name in ("lam1e-4-seed0", "lam1e-3-seed0"):
        assert (tmp_path / name / "finetuned.safetensors").exists() and (tmp_path / name / "record.json").exists()
    assert not (tmp_path / "lam1e30-seed0" / "sparse.safetensors").exists()
    again = otprune("sweep", **swept, out=tmp_path)
    assert (again.code, again.err) == (1, done.err)


def test_a_run_that_cannot_be_pruned_or_gone_on_with_is_set_aside_too(tmp_path: Path) -> None:
    """Where all γ are 0 there is no threshold; a checkpoint of other settings is none to go on from."""
    asked = replace(experiment(), training=replace(experiment().training, epochs=0), finetuning=Finetuning(epochs=1))
    zero, other, good = (pipeline_in(tmp_path / name, asked) for name in ("zero", "other", "good"))
    stages.train([zero, other])
    ot.save(without_scaling(zero.load("sparse.safetensors")), zero.folder / "sparse.safetensors")
    stages.prune(other)
    Run(other.load("pruned.safetensors"), other.data, asked.training, other.folder / "finetune").save()
    with pytest.raises(
        RunsFailed, match=rf"^{zero.folder}: no layer .*\n{other.folder}/finetune/.* belongs to"
    ) as failed:
        stages.run([zero, other, good])
    assert [pipeline.folder.name for pipeline, _ in failed.value.errors] == ["zero", "other"]
    assert (good.folder / "finetuned.safetensors").exists() and (good.folder / "record.json").exists()


def without_scaling(model: nn.Module) -> nn.Module:
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.zeros_(norm.weight)
    return model
