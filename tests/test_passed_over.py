"""Settings that would be passed over are refused, and only those: flags, and what is in a file of the user's own."""

from importlib import resources
from pathlib import Path

import pytest

from otprune import experiments
from otprune.errors import TrainingError
from otprune.experiments.claiming import claim
from otprune.experiments.experiment import Experiment, Finetuning
from otprune.experiments.fields import Flat
from otprune.experiments.settings import recipes, resolved
from otprune.training.run import Training
from tests.command_line import run_here

DIGITS: Flat = {"model": "digits_net", "data": "digits"}
VGG: Flat = {"model": "vgg14", "data": "cifar10"}
HALVES = (0.5, 0.75)
FALLING = '[training]\nschedule = "cosine"\ndecay_at = [0.3]'


def in_file(folder: Path, text: str) -> str:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("rule", "name"), [("ot", "pruning.ratio"), ("ns", "pruning.delta")])
def test_a_flag_that_the_rule_would_pass_over_is_refused(rule: str, name: str) -> None:
    asked = DIGITS | {"pruning.rule": rule, name: 0.3}
    with pytest.raises(TrainingError, match=f"{name} is of no use to the rule {rule}: give --rule"):
        resolved(asked)
    assert resolved(asked | {"pruning.rule": {"ot": "ns", "ns": "ot"}[rule]}).pruning.rule != rule


def test_steering_to_what_ot_keeps_is_of_no_use_to_the_rule_ns() -> None:
    asked = DIGITS | {"training.target_flops": 0.3}
    with pytest.raises(TrainingError, match=r"target_flops is of no use to the rule ns, since λ is .*: give --rule ot"):
        resolved(asked | {"pruning.rule": "ns"})
    assert resolved(asked).training.target_flops == 0.3


def test_steering_that_a_file_asks_for_is_not_overruled_in_silence(tmp_path: Path) -> None:
    steered = in_file(tmp_path, "[training]\ntarget_flops = 0.3")
    with pytest.raises(TrainingError, match=r"my\.toml: training\.target_flops is of no use to the rule ns"):
        resolved(DIGITS | {"pruning.rule": "ns"}, steered)
    assert resolved(DIGITS, steered).training.target_flops == 0.3


@pytest.mark.parametrize(
    ("name", "value"), [("rate", 0.1), ("schedule", "cosine"), ("report_after", (1,)), ("distill", 0.5)]
)
def test_how_to_fine_tune_is_of_no_use_without_it(name: str, value: object) -> None:
    asked = DIGITS | {f"finetuning.{name}": value}
    with pytest.raises(TrainingError, match=f"{name} is of no use without fine-tuning: give --finetune-epochs, or"):
        resolved(asked | {"finetuning.epochs": 0})
    assert resolved(asked | {"finetuning.epochs": 1})


@pytest.mark.parametrize(("name", "value"), [("distill", 0.0), ("report_after", ())])
def test_what_asks_for_nothing_is_let_through(name: str, value: object) -> None:
    """As programs do that give every flag."""
    assert resolved(DIGITS | {"finetuning.epochs": 0, f"finetuning.{name}": value}).finetuning.epochs == 0


def test_nothing_is_measured_past_the_last_epoch() -> None:
    asked = DIGITS | {"finetuning.epochs": 2, "finetuning.report_after": (1, 3)}
    with pytest.raises(TrainingError, match="report_after is of no use past the last epoch: give --finetune-epochs 3"):
        resolved(asked)
    assert resolved(asked | {"finetuning.epochs": 3}) and resolved(DIGITS | {"finetuning.epochs": 2})


@pytest.mark.parametrize(("name", "value"), [("latency_runtime", "openvino"), ("latency_threads", 2)])
def test_how_to_measure_latency_is_of_no_use_without_one_to_meet(name: str, value: str | int) -> None:
    asked = DIGITS | {"pruning.flops": 0.4, f"pruning.{name}": value}
    with pytest.raises(TrainingError, match=f"pruning.{name} is of no use without a latency to meet: give --latency"):
        resolved(asked)
    met = {"pruning.flops": None, "pruning.latency": "2ms"}
    assert getattr(resolved(asked | met).pruning, name) == value


@pytest.mark.parametrize(
    ("name", "value", "other", "fitting"),
    [
        ("training.decay_at", (0.3,), {"training.schedule": "cosine"}, {"training.schedule": "steps"}),
        ("finetuning.temperature", 2.0, {}, {"finetuning.distill": 0.5}),
        ("finetuning.temperature", 2.0, {"finetuning.distill": 0.0}, {"finetuning.distill": 0.5}),
    ],
)
def test_a_flag_of_training_that_another_passes_over_is_refused(
    name: str, value: object, other: Flat, fitting: Flat
) -> None:
    asked = DIGITS | {name: value}
    ((needed, _),) = fitting.items()
    with pytest.raises(TrainingError, match=f"{name} is of no use .*: give --{needed.rpartition('.')[2]}"):
        resolved(asked | other)
    assert resolved(asked | fitting)


def test_it_is_told_of_the_flag_before_anything_is_done(tmp_path: Path) -> None:
    flags = DIGITS | {"schedule": "cosine", "decay_at": "0.3", "out": tmp_path / "run"}
    done = run_here("run", **flags)
    told = "--decay-at is of no use to a rate that falls along a cosine: give --schedule steps, or leave it out\n"
    assert (done.code, done.err) == (1, told) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("flag", ["finetune_epochs", "finetune_rate", "report_after", "distill"])
def test_fine_tuning_is_of_no_use_to_rounds_that_restart_from_scratch(flag: str, tmp_path: Path) -> None:
    done = run_here("iterate", **DIGITS, restart="scratch", out=tmp_path / "rounds", **{flag: 1})
    name = flag.replace("_", "-")
    told = f"--{name} is of no use to rounds that restart from scratch: give --restart finetuned, or leave it out\n"
    assert (done.code, done.err) == (1, told) and not (tmp_path / "rounds").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (FALLING, "training.decay_at is of no use to a rate that falls along a cosine: set training.schedule to steps"),
        ("[finetuning]\ntemperature = 2", "finetuning.temperature is of no use without .*: set finetuning.distill, or"),
        (
            "[pruning]\nratio = 0.3",
            "pruning.ratio is of no use to the rule ot: set pruning.rule to ns, or leave it out",
        ),
        ('[pruning]\nrule = "ns"\ndelta = 0.1', "pruning.delta is of no use to the rule ns"),
        ("[pruning]\nlatency_threads = 2", "pruning.latency_threads is of no use without a latency to meet"),
        (
            "[finetuning]\nepochs = 0\ndistill = 0.5",
            "finetuning.distill is of no use without fine-tuning: set finetuning.epochs, or leave it out",
        ),
        (
            "[finetuning]\nreport_after = [50]",
            "finetuning.report_after is of no use past .*: set finetuning.epochs to 50",
        ),
    ],
)
def test_what_a_file_sets_to_no_effect_is_refused_by_the_name_of_the_file(text: str, told: str, tmp_path: Path) -> None:
    file = in_file(tmp_path, text)
    with pytest.raises(TrainingError, match=f"{file}: {told}"):
        resolved(DIGITS, file)


@pytest.mark.parametrize(
    ("text", "flags", "heard"),
    [
        (FALLING, {"training.schedule": "steps"}, ((0.3,), 1e-3, 0.5)),
        ("[pruning]\nratio = 0.3", {"pruning.rule": "ns"}, (HALVES, 1e-3, 0.3)),
        ("[training]\ndecay_at = [0.3]", {"training.schedule": "cosine"}, ((0.3,), 1e-3, 0.5)),
        ("[pruning]\ndelta = 0.1", {"pruning.rule": "ns"}, (HALVES, 0.1, 0.5)),
        ('[training]\nschedule = "cosine"\ndecay_at = [0.5, 0.75]', {}, (HALVES, 1e-3, 0.5)),
    ],
    ids=["a flag gives it an effect", "so here", "a flag overrules it", "so here, too", "the default"],
)
def test_a_file_is_not_to_blame_for_flags_nor_for_a_default(
    text: str, flags: Flat, heard: tuple[object, ...], tmp_path: Path
) -> None:
    asked = resolved(DIGITS | flags, in_file(tmp_path, text))
    assert (asked.training.decay_at, asked.pruning.delta, asked.pruning.ratio) == heard


def test_a_file_goes_with_a_folder_whose_run_was_begun_with_other_flags(tmp_path: Path) -> None:
    training, finetuning = Training(schedule="cosine", decay_at=(0.3,), augment=False), Finetuning(distill=0.5)
    claim(tmp_path, Experiment("digits_net", "digits", training=training, finetuning=finetuning))
    file = in_file(tmp_path, "[training]\ndecay_at = [0.3]\n[finetuning]\ntemperature = 2")
    assert resolved({}, file, tmp_path).finetuning.temperature == 2
    assert resolved({}, None, tmp_path).training.decay_at == (0.3,)


@pytest.mark.parametrize("name", recipes())
def test_no_recipe_sets_what_has_no_effect(name: str) -> None:
    with resources.as_file(resources.files(experiments) / "recipes" / f"{name}.toml") as file:
        assert resolved(VGG, str(file)) == resolved(VGG, name)
