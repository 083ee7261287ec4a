"""The stages one by one, as verbs: they add up to the whole run, and each takes its own settings."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import otprune as ot
from otprune import models
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.run_facts import configuration
from otprune.surgery import plans_of
from otprune.training import data as datasets
from otprune.training.run import Training
from tests.command_line import DIGITS, results, run_here
from tests.small_runs import read

SHORT: dict[str, object] = {"epochs": 2, "lam": 1e-2, "hold_out": 0.1}


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "a run"
    done = run_here("train", **DIGITS, **SHORT, out=folder)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == f"next: otprune prune --out '{folder}'"
    return folder


@pytest.fixture(scope="module")
def pruned_once(trained_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(trained_once, tmp_path_factory.mktemp("pruned") / "run"))
    done = run_here("prune", out=folder)
    assert done.code == 0, done.err
    ways = (f"otprune {verb} --out {folder}" for verb in ("finetune", "scratch"))
    assert done.out.splitlines()[-1] == f"next: {' or '.join(ways)}"
    return folder


@pytest.fixture
def pruned(pruned_once: Path, tmp_path: Path) -> Path:
    """A run that has been trained and pruned, with the settings that the whole run has."""
    return Path(shutil.copytree(pruned_once, tmp_path / "run"))


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path) -> Path:
    """A run that has been trained and nothing more."""
    return Path(shutil.copytree(trained_once, tmp_path / "run"))


def test_the_stages_alone_add_up_to_the_whole_run(pruned: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert run_here("run", **DIGITS, **SHORT, finetune_epochs=1, out=whole).code == 0
    assert run_here("finetune", finetune_epochs=1, out=pruned).code == 0
    assert configuration(pruned) == configuration(whole)
    ours, theirs = results(pruned), results(whole)
    assert {"accuracy_held_out_finetuned", "accuracy_held_out_finetuned_1"} <= ours.keys()
    assert ours.pop("seconds").keys() == theirs.pop("seconds").keys()
    assert ours == theirs


def test_what_is_held_out_is_measured_beside_the_test_images(pruned: Path) -> None:
    found = results(pruned)
    for stage in ("sparse", "pruned", "folded", "recalibrated"):
        assert 0 <= found[f"accuracy_held_out_{stage}"] <= 1 and 0 <= found[f"accuracy_{stage}"] <= 1
    assert found["accuracy_held_out_sparse"] != found["accuracy_sparse"]


def test_a_later_stage_takes_its_own_settings_until_it_is_done(trained: Path) -> None:
    assert run_here("prune", out=trained, rule="ns", ratio=0.25, max_layer_ratio=0.5).code == 0
    found = configuration(trained)
    assert found is not None and (found.pruning.rule, found.pruning.ratio) == ("ns", 0.25)
    layers = results(trained)["layers"]
    assert len({layer["threshold"] for layer in layers}) == 1
    assert all(layer["kept"] >= layer["channels"] / 2 for layer in layers)
    refused = run_here("prune", out=trained, ratio=0.5)
    assert refused.code == 1 and "belongs to a run with pruning.ratio=0.25, not 0.5" in refused.err
    assert refused.err.count("\n") == 1 and configuration(trained) == found


def without_finetuning(folder: Path, *names: str) -> set[str]:
    """Fine-tune a pruned run and remove some of what it left; the names of its results."""
    assert run_here("finetune", finetune_epochs=1, out=folder).code == 0
    for name in names:
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    return {name for name in results(folder) if "finetun" in name}


def test_what_was_measured_after_fine_tuning_goes_where_another_network_is_pruned(pruned: Path) -> None:
    names = without_finetuning(pruned, "pruned.safetensors", "finetuned.safetensors", "finetune")
    assert {"accuracy_finetuned", "accuracy_held_out_finetuned_1", "finetuning"} <= names
    done = run_here("prune", out=pruned, rule="ns", ratio=0.25)
    assert done.code == 0 and "what was measured after fine-tuning is left out" in done.out
    found = results(pruned)
    assert not any("finetun" in name for name in (*found, *found["seconds"])) and "accuracy_recalibrated" in found
    assert read(pruned / "provenance.json").keys() == {"train", "prune"}
    assert run_here("finetune", out=pruned).code == 0 and names <= results(pruned).keys()


def test_what_was_fine_tuned_stays_where_the_same_network_is_pruned_again(pruned: Path) -> None:
    names = without_finetuning(pruned, "pruned.safetensors")
    files = {name: (pruned / name).read_bytes() for name in ("finetuned.safetensors", "plan.json")}
    before = results(pruned)
    done = run_here("prune", out=pruned)
    assert done.code == 0 and "left out" not in done.out
    after = results(pruned)
    assert names and all(after[name] == before[name] for name in names)
    assert files == {name: (pruned / name).read_bytes() for name in files}


@pytest.mark.parametrize("left", [("finetuned.safetensors",), ("finetune", "finetuned.safetensors")])
def test_files_of_another_network_are_named_and_nothing_is_lost(left: tuple[str, ...], pruned: Path) -> None:
    """The plan of before is not known any more, so what was fine-tuned may be of any network."""
    gone = {"finetune"} - set(left)
    without_finetuning(pruned, "pruned.safetensors", "plan.json", *gone)
    before = {path: path.read_bytes() for path in pruned.rglob("*") if path.is_file() and path.name != "results.json"}
    done = run_here("prune", out=pruned)
    assert done.code == 1 and f"{' and '.join(left)} belong to another network than" in done.err
    assert before == {path: path.read_bytes() for path in before} and not (pruned / "pruned.safetensors").exists()
    assert "accuracy_finetuned" in results(pruned)


def test_channels_are_kept_at_multiples_of_what_is_asked_for(trained: Path) -> None:
    assert run_here("prune", out=trained, rule="ns", ratio=0.3, round_to=4).code == 0
    layers = results(trained)["layers"]
    assert all(layer["kept"] % 4 == 0 for layer in layers)
    assert any(layer["kept"] < layer["channels"] for layer in layers)
    assert any((layer["channels"] - layer["negligible"]) % 4 for layer in layers)  # the thresholds alone keep others


def test_a_copy_of_what_was_trained_is_pruned_on_its_own(trained: Path, tmp_path: Path) -> None:
    """As the page on deploying says: the settings and the weights are all that it takes."""
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "sparse.safetensors"):
        shutil.copy(trained / name, other)
    done = run_here("run", out=other, finetune_epochs=0)
    assert done.code == 0, done.err
    assert results(other)["accuracy_sparse"] == results(trained)["accuracy_sparse"]


def test_a_budget_is_met_and_the_record_says_what_was_tried(trained: Path) -> None:
    done = run_here("prune", out=trained, flops=0.5)
    assert done.code == 0, done.err
    found = results(trained)
    assert found["cost_after"]["flops"] <= 0.5 * found["cost_before"]["flops"]
    assert found["rule"]["rule"] == "Shifted"
    assert found["choosing"][-1]["accuracy"] == pytest.approx(found["accuracy_held_out_recalibrated"])


def test_a_budget_is_met_where_no_images_are_held_out(tmp_path: Path) -> None:
    assert run_here("train", **DIGITS, epochs=1, lam=1e-2, out=tmp_path / "run").code == 0
    done = run_here("prune", out=tmp_path / "run", flops=0.4)
    assert done.code == 0, done.err
    found = results(tmp_path / "run")
    assert found["cost_after"]["flops"] <= 0.4 * found["cost_before"]["flops"]
    assert len(found["choosing"]) > 2 and {step["accuracy"] for step in found["choosing"]} == {None}


def test_a_stage_without_the_one_before_says_what_to_do(trained: Path, tmp_path: Path) -> None:
    assert run_here("finetune", out=trained).err == (
        f"{trained} has no pruned.safetensors yet: make it with otprune prune --out {trained}\n"
    )
    nowhere = tmp_path / "nowhere"
    for verb in ("prune", "finetune", "scratch"):
        done = run_here(verb, out=nowhere)
        begin = f"begin one with otprune train --model NAME --data NAME --out {nowhere}\n"
        assert (done.code, done.err) == (1, f"{nowhere} holds no run: {begin}")
        file = run_here(verb, out=trained / "sparse.safetensors")
        assert file.code == 1 and f"is a file: name the folder of a run, as {trained} is if it" in file.err
    assert not nowhere.exists()


def test_a_file_is_resolved_with_flags_into_the_configuration_of_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        'model = "digits_net"\ndata = "digits"\n[training]\nepochs = 9\nlam = 1e-2\n[pruning]\ndelta = 0.01'
    )
    done = run_here("train", config=file, epochs=0, decay_at="0.3,0.6", no_augment=None, out=tmp_path / "run")
    assert done.code == 0, done.err
    found = configuration(tmp_path / "run")
    assert found is not None and found.training == Training(epochs=0, lam=1e-2, decay_at=(0.3, 0.6), augment=False)
    assert found.pruning.delta == 0.01 and found.model == "digits_net"
    file.write_text("[training]\nepoch = 9")
    refused = run_here("train", **DIGITS, config=file, out=tmp_path / "other")
    assert refused.code == 1 and not (tmp_path / "other").exists()
    assert refused.err == f"{file}: there is no setting training.epoch; did you mean training.epochs?\n"


def test_distillation_learns_from_the_unpruned_model(pruned: Path, tmp_path: Path) -> None:
    """With all the weight on the teacher, labels do not matter: the fine-tuned model follows the sparse one."""
    plain = Path(shutil.copytree(pruned, tmp_path / "plain"))
    for folder, weight in ((plain, 0), (pruned, 1)):
        assert run_here("finetune", finetune_epochs=1, finetune_rate=0.01, distill=weight, out=folder).code == 0
    paths = (plain / "sparse.safetensors", plain / "finetuned.safetensors", pruned / "finetuned.safetensors")
    taught, alone, following = (outputs(path) for path in paths)
    apart = [F.kl_div(found, taught, reduction="batchmean", log_target=True) for found in (following, alone)]
    assert apart[0] < apart[1] / 2


@torch.no_grad()
def outputs(path: Path) -> Tensor:
    """The logarithms of the probabilities that a model gives the test images."""
    data = datasets.load("digits")
    pixels = (data.test.pixels / 255 - data.mean.view(1, -1, 1, 1)) / data.std.view(1, -1, 1, 1)
    scores: Tensor = ot.load(models.digits_net(), path).eval()(pixels)
    return scores.log_softmax(1)


def test_from_scratch_is_the_pruned_architecture_with_other_weights_on_the_papers_budget(pruned: Path) -> None:
    done = run_here("scratch", out=pruned)
    assert done.code == 0, done.err
    found = results(pruned)
    saving = found["cost_before"]["flops"] / found["cost_after"]["flops"]
    assert len(found["scratch"]) == round(2 * min(saving, 2)) and {epoch["lam"] for epoch in found["scratch"]} == {0}
    assert 0 <= found["accuracy_scratch"] <= 1 and found["seconds"]["scratch"] > 0
    small, fresh = (ot.load(models.digits_net(), pruned / f"{name}.safetensors") for name in ("pruned", "scratch"))
    assert plans_of(small) == plans_of(fresh)
    assert not torch.equal(next(small.parameters()), next(fresh.parameters()))


def test_weights_from_scratch_follow_the_width_that_is_left(tmp_path: Path) -> None:
    asked = Experiment("digits_net", "digits", training=Training(epochs=0, augment=False))
    pipeline = Pipeline(asked, tmp_path, open_data("digits"), torch.device("cpu"))
    sparse = pipeline.fresh_model()
    for norm in (module for module in sparse.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.weight.data[: len(norm.weight) // 2] = 1e-9
    ot.save(sparse, tmp_path / "sparse.safetensors")
    stages.prune(pipeline)
    stages.scratch([pipeline])
    fresh = pipeline.load("scratch.safetensors")
    convs = [module for module in fresh.modules() if isinstance(module, nn.Conv2d) and module.weight.numel() > 500]
    assert convs and all(norm.weight.eq(0.5).all() for norm in fresh.modules() if isinstance(norm, nn.BatchNorm2d))
    for conv in convs:
        spread = (2 / (conv.kernel_size[0] * conv.kernel_size[1] * conv.out_channels)) ** 0.5
        assert conv.weight.std().item() == pytest.approx(spread, rel=0.1)


def test_a_training_can_begin_from_a_checkpoint(pruned: Path, tmp_path: Path) -> None:
    """What iterative pruning does: the pruned model of one pass is where the next one begins."""
    asked = Experiment("digits_net", "digits", training=Training(epochs=0, augment=False))
    start = pruned / "pruned.safetensors"
    pipeline = Pipeline(asked, tmp_path / "next", open_data("digits"), torch.device("cpu"), start=start)
    stages.train([pipeline])
    before, after = ot.load(models.digits_net(), start), pipeline.load("sparse.safetensors")
    torch.testing.assert_close(after.state_dict(), before.state_dict(), rtol=0, atol=0)
    stages.prune(pipeline)
    assert len(plans_of(pipeline.load("pruned.safetensors"))) == 2
