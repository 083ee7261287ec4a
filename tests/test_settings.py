"""Recipes, TOML files, flags and folders: which setting wins, what is refused, and how a refusal helps."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otprune.cli import app
from otprune.cli.flags import with_settings
from otprune.errors import OtpruneError, ThresholdError, TrainingError
from otprune.experiments.claiming import claim
from otprune.experiments.experiment import Experiment, Finetuning, Pruning, scratch_epochs
from otprune.experiments.explained import MEANINGS
from otprune.experiments.fields import flat, kinds
from otprune.experiments.folder import CONFIGURATION
from otprune.experiments.run_facts import configuration
from otprune.experiments.settings import implied, recipe, recipes, resolved
from otprune.training.run import Training
from otprune.training.schedule import Steps

VGG: dict[str, Any] = {"model": "vgg14", "data": "cifar10"}


def written(folder: Path, text: str) -> str:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_defaults_are_the_papers_cifar_recipe() -> None:
    assert resolved(VGG) == resolved(VGG, "cifar") == Experiment("vgg14", "cifar10")
    defaults = flat(Experiment("vgg14", "cifar10").to_dict())
    assert all(defaults[name] == (list(v) if isinstance(v, tuple) else v) for name, v in recipe("cifar").items())


def test_the_ilsvrc_recipe_decays_at_the_30th_and_60th_epoch() -> None:
    training = resolved(VGG, "ilsvrc").training
    rate = Steps(training.rate, training.decay_at)
    rates = [rate(epoch, training.epochs) for epoch in (29, 30, 59, 60, 89)]
    assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001, 0.001])
    assert (training.epochs, training.batch, training.lam) == (90, 256, 2e-4)


def test_every_recipe_is_complete_with_a_model_and_data() -> None:
    assert recipes() == ["best", "cifar", "digits", "ilsvrc", "resnet20"]
    for name in recipes():
        resolved({**VGG, **recipe(name)}, name)
    asked = resolved({}, "resnet20")
    assert (asked.model, asked.data, asked.training.batch, asked.finetuning.epochs) == ("resnet20", "cifar10", 125, 12)


def test_the_data_implies_a_recipe(tmp_path: Path) -> None:
    assert implied("cifar100") == recipe("cifar")
    assert resolved({"model": "digits_net", "data": "digits"}).training.augment is False
    assert resolved({"model": "vgg16_bn", "data": str(tmp_path)}).training.batch == 256
    for name in ("data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"):
        (tmp_path / name).touch()
    (tmp_path / "test_batch.bin").touch()
    assert resolved({"model": "vgg14", "data": str(tmp_path)}).training.batch == 64


def test_a_flag_wins_over_a_file_and_a_file_over_the_recipe_that_the_data_implies(tmp_path: Path) -> None:
    file = written(tmp_path, 'data = "digits"\n[training]\nepochs = 5\naugment = true\n[finetuning]\nepochs = 7\n')
    asked = resolved({"model": "digits_net", "training.epochs": 3}, file)
    assert (asked.training.epochs, asked.training.augment, asked.finetuning.epochs) == (3, True, 7)
    assert asked.training.batch == 64


def test_a_folder_with_a_run_says_what_is_not_given(tmp_path: Path) -> None:
    begun = resolved({**VGG, "training.lam": 1e-3})
    claim(tmp_path, begun)
    assert resolved({}, folder=tmp_path) == begun
    assert resolved({"pruning.delta": 1e-2}, folder=tmp_path) == replace(begun, pruning=Pruning(delta=1e-2))


def test_an_experiment_comes_back_from_its_json() -> None:
    whole = Experiment(
        "net.py:build",
        "photos",
        hold_out=0.2,
        training=Training(epochs=3, decay_at=(), target_flops=0.4),
        pruning=Pruning(rule="ns", ratio=0.4, max_drop=0.5),
        finetuning=Finetuning(report_after=(2,), distill=0.5),
    )
    assert Experiment.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nepoch = 3", "there is no setting training.epoch; did you mean training.epochs?"),
        ("delta = 0.1", "there is no setting delta; did you mean pruning.delta?"),
        ("[trainin]\nlam = 0.1", "there is no setting trainin.lam; did you mean training.lam?"),
        ("training = 3", "there is no setting training; [training] is a table of settings"),
        ("[training]\nepochs = 'many'", "training.epochs must be a whole number, not 'many'"),
        ("[training]\nepochs = 1.5", "training.epochs must be a whole number, not 1.5"),
        ("[training]\nepochs = true", "training.epochs must be a whole number, not True"),
        ("[training]\nrate = '0.1'", "training.rate must be a number, not '0.1'"),
        ("[training]\naugment = 1", "training.augment must be true or false, not 1"),
        ("[training]\ndecay_at = 0.5", "training.decay_at must be a list of numbers, not 0.5"),
        ("[finetuning]\nreport_after = [1.5]", "finetuning.report_after must be a list of whole numbers, not [1.5]"),
        ("[pruning]\nrule = 'l1'", "pruning.rule must be one of 'ot', 'ns', not 'l1'"),
        ("model = 14", "model must be a text, not 14"),
        ("[training", "is not TOML: "),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_the_mistake(text: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(TrainingError, match=f"^{re.escape(f'{file}: {message}')}"):
        resolved(VGG, file)


def test_a_recipe_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TrainingError, match=r"cifr is neither a file nor one of the recipes .*; did you mean cifar\?"):
        resolved(VGG, "cifr")


@pytest.mark.parametrize("missing", ["model", "data"])
def test_without_model_or_data_the_flag_to_give_is_named(missing: str) -> None:
    given = {name: value for name, value in VGG.items() if name != missing}
    with pytest.raises(TrainingError, match=f"does not say which {missing}: give it with --{missing}"):
        resolved(given)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hold_out": 1.0}, "hold_out must lie from 0 to below 1, not 1.0"),
        ({"pruning.delta": 2.0}, "δ must lie strictly between 0 and 1"),
        ({"pruning.rule": "ns", "pruning.ratio": 1.0}, "ratio must lie in"),
        ({"pruning.flops": 40.0}, "flops is a share of the original, above 0 and up to 1, not 40.0"),
        ({"pruning.max_drop": -1.0}, "max_drop is in points of accuracy, from 0 to 100, not -1.0"),
        ({"pruning.flops": 0.4, "pruning.params": 0.1}, "pruning can meet one of max_drop, flops, params, latency,"),
        ({"pruning.latency": "1.5"}, "pruning.latency must be a time with its unit, such as 1.5ms or 800us, not '1.5'"),
        ({"pruning.latency": "0ms"}, "latency is in milliseconds, above 0, not 0.0"),
        ({"pruning.latency_threads": 0}, "pruning.latency_threads must be at least 1, not 0"),
        ({"pruning.calibration_images": 0}, "pruning.calibration_images must be at least 1, not 0"),
        ({"pruning.max_layer_ratio": 1.1}, "pruning.max_layer_ratio must lie from 0 to 1, not 1.1"),
        ({"pruning.round_to": 0}, "pruning.round_to must be at least 1, not 0"),
        (
            {"pruning.latency": "1ms", "pruning.round_to": 8},
            "pruning.round_to is chosen by measurement where pruning.latency is to be met",
        ),
        ({"finetuning.distill": 1.5}, "finetuning.distill must lie from 0 to 1, not 1.5"),
        ({"finetuning.temperature": 0.0}, "finetuning.temperature must be above 0, not 0.0"),
        ({"finetuning.epochs": -1}, "finetuning.epochs must be at least 0, not -1"),
        ({"finetuning.report_after": (0,)}, "finetuning.report_after counts from 1"),
        ({"training.lam": float("nan")}, "lam must be a finite number"),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(OtpruneError, match=re.escape(message)):
        resolved({**VGG, **wrong})


def test_what_is_chosen_by_accuracy_holds_out_a_tenth_unless_told_otherwise() -> None:
    assert resolved(VGG).hold_out == 0
    assert resolved({**VGG, "pruning.max_drop": 0.5}).hold_out == 0.1
    assert resolved({**VGG, "pruning.max_drop": 0.5, "hold_out": 0.2}).hold_out == 0.2


@pytest.mark.parametrize("budget", ["flops", "params"])
def test_a_budget_needs_no_held_out_images(budget: str, tmp_path: Path) -> None:
    asked = {f"pruning.{budget}": 0.4}
    assert resolved({**VGG, **asked}).hold_out == 0
    assert resolved({**VGG, **asked, "hold_out": 0.2}).hold_out == 0.2
    claim(tmp_path, Experiment("vgg14", "cifar10"))
    assert resolved(asked, folder=tmp_path).pruning == Pruning(**{budget: 0.4})


def test_a_target_replaces_the_one_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[pruning]\nflops = 0.4")
    assert resolved({**VGG, "pruning.params": 0.1}, file).pruning == Pruning(params=0.1)


def test_accuracy_to_keep_in_a_run_that_held_out_nothing_is_refused_with_what_to_do(tmp_path: Path) -> None:
    claim(tmp_path, Experiment("vgg14", "cifar10"))
    with pytest.raises(TrainingError, match=r"this run holds out none: train in another folder with --hold-out 0\.1"):
        resolved({"pruning.max_drop": 0.5}, folder=tmp_path)


def test_a_section_can_change_until_something_depends_on_it(tmp_path: Path) -> None:
    begun = Experiment("vgg14", "cifar10")
    pruned = replace(begun, pruning=Pruning(delta=1e-2))
    tuned = replace(pruned, finetuning=Finetuning(epochs=3))
    for experiment, file in ((begun, "sparse"), (pruned, "pruned"), (tuned, "finetuned")):
        claim(tmp_path, experiment)
        assert configuration(tmp_path) == experiment
        (tmp_path / f"{file}.safetensors").touch()
    for changed, said_ in (
        (replace(tuned, pruning=Pruning()), r"pruning\.delta=0\.01, not 0\.001"),
        (replace(tuned, finetuning=Finetuning()), r"finetuning\.epochs=3, not 40"),
        (replace(tuned, hold_out=0.1), r"hold_out=0\.0, not 0\.1"),
    ):
        with pytest.raises(TrainingError, match=f"the folder belongs to a run with {said_}"):
            claim(tmp_path, changed)
    assert configuration(tmp_path) == tuned


def test_a_fine_tuning_under_way_settles_its_section(tmp_path: Path) -> None:
    claim(tmp_path, Experiment("vgg14", "cifar10"))
    (tmp_path / "finetune").mkdir()
    (tmp_path / "finetune" / "at-00001-0000000.safetensors").touch()
    with pytest.raises(TrainingError, match=r"finetuning\.rate=0\.001, not 0\.1"):
        claim(tmp_path, Experiment("vgg14", "cifar10", finetuning=Finetuning(rate=0.1)))


@pytest.mark.parametrize("content", ["{", "[]", '{"model": "vgg14", "lam": 1}'])
def test_a_configuration_that_is_none_is_refused_with_its_file(content: str, tmp_path: Path) -> None:
    (tmp_path / CONFIGURATION).write_text(content)
    with pytest.raises(TrainingError, match=re.escape(str(tmp_path / CONFIGURATION))):
        configuration(tmp_path)


@pytest.mark.parametrize(("after", "epochs"), [(100, 160), (80, 200), (51, 314), (50, 320), (10, 320)])
def test_training_from_scratch_costs_what_the_training_did_but_at_most_twice_the_epochs(
    after: int, epochs: int
) -> None:
    assert scratch_epochs(160, flops_before=100, flops_after=after) == epochs
    asked = Experiment("vgg14", "cifar10", training=Training(target_flops=0.4))
    assert asked.scratch_training(100, after) == Training(epochs=epochs, lam=0.0)


def test_fine_tuning_is_the_training_without_penalty_at_a_constant_rate() -> None:
    asked = Experiment("vgg14", "cifar10", training=Training(batch=32, target_flops=0.4, seed=3))
    assert asked.finetune_training() == Training(epochs=40, rate=1e-3, decay_at=(), lam=0.0, batch=32, seed=3)


def test_fine_tuning_and_training_from_scratch_keep_what_the_training_had_besides() -> None:
    kept = Training(label_smoothing=0.1, cutout=8, weight_decay=5e-4, proximal=True)
    asked = Experiment("vgg14", "cifar10", training=replace(kept, schedule="cosine"))
    constant = replace(kept, epochs=40, rate=1e-3, schedule="steps", decay_at=(), lam=0.0)
    assert asked.finetune_training() == constant
    falling = replace(asked, finetuning=Finetuning(rate=0.01, schedule="cosine")).finetune_training()
    assert falling == replace(constant, rate=0.01, schedule="cosine")
    assert asked.scratch_training(100, 100) == replace(kept, schedule="cosine", lam=0.0)


def test_a_cosine_falls_from_the_rate_to_almost_zero_and_does_not_depend_on_decay_at() -> None:
    rates = [Training(schedule="cosine", decay_at=(0.1,)).rates()(epoch, 160) for epoch in range(161)]
    assert rates[0] == 0.1 and rates[80] == pytest.approx(0.05) and rates[160] == pytest.approx(0, abs=1e-12)
    assert rates == sorted(rates, reverse=True) and rates[159] > 0


def test_every_setting_has_a_meaning_and_a_flag_of_its_own() -> None:
    assert set(MEANINGS) == set(kinds(Experiment))

    @with_settings("", "training", "pruning", "finetuning")
    def verb(given: dict[str, Any]) -> None:
        pass

    assert len(inspect.signature(verb).parameters) == len(MEANINGS)


def test_a_verb_has_the_flags_of_its_sections_alone() -> None:
    verbs = ("run", "train", "prune", "finetune", "scratch", "sweep")
    helps = {verb: CliRunner().invoke(app, [verb, "--help"]).output for verb in verbs}
    assert all(f"--{flag}" in helps["run"] for flag in ("lam", "delta", "finetune-epochs", "hold-out", "config"))
    assert "--lam" in helps["train"] and "--delta" not in helps["train"]
    assert "--delta" in helps["prune"] and "--model" not in helps["prune"] and "--epochs" not in helps["prune"]
    assert "--distill" in helps["finetune"] and "--delta" not in helps["finetune"]
    assert "--out" in helps["scratch"] and "--config" not in helps["scratch"]
    assert "--seeds" in helps["sweep"] and "--seed " not in helps["sweep"]
    assert "Fine-tuning" in helps["run"] and "Pruning" in helps["run"]  # flags come in groups


def test_delta_is_checked_by_its_rule() -> None:
    with pytest.raises(ThresholdError):
        Pruning(delta=0.0)
