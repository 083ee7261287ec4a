"""What somebody meets who uses the command line for the first time: how it explains itself and what went wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import otprune as ot
from otprune import models
from otprune.errors import CheckpointError, TrainingError
from otprune.experiments.claiming import claim
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.remarks import remarks
from otprune.experiments.run_facts import configuration
from otprune.experiments.settings import resolved
from otprune.training.data import load
from otprune.training.run import Run, Training
from tests.command_line import Done, otprune, run_here, said

NONE_GOES = "no channel was negligible: train longer or with a larger --lam, or prune with --flops"
DIGITS: dict[str, Any] = {"model": "digits_net", "data": "digits"}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A run that is too short for what it is asked."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    done = otprune("run", epochs=1, target_flops=0.3, lam=1e-6, finetune_epochs=0, out=folder)
    assert done.code == 0, done.err
    return folder, done


def test_a_share_of_the_flops_that_was_missed_is_told_and_recorded(finished: tuple[Path, Done]) -> None:
    folder, done = finished
    results = read(folder / "record.json")["results"]
    asked, nothing = results["remarks"]
    reached = f"{100 * results['cost_after']['flops'] / results['cost_before']['flops']:.3g} %"
    way_out = "train longer, start from a larger --lam, or prune with --flops 0.3"
    assert asked == f"asked for 30 % of the FLOPs, reached {reached}: {way_out}"
    assert nothing == NONE_GOES
    assert done.out.splitlines()[-3:-1] == [asked, nothing]


def test_a_run_says_how_to_feed_its_model(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    described, digits = read(folder / "data.json"), load("digits")
    assert read(folder / "record.json")["data"] == described
    assert described["classes"] == list(digits.classes) and described["image_shape"] == [1, 8, 8]
    steps = "from 0 to 16, multiplied by 255/16, rounded and divided by 255; then mean is subtracted and std divides"
    assert steps in described["preparation"]
    mean, std = (torch.tensor(described[name]).view(-1, 1, 1) for name in ("mean", "std"))
    model = ot.load(models.digits_net(), folder / "sparse.safetensors").eval()
    with torch.no_grad():
        right = model((digits.test.pixels / 255 - mean) / std).argmax(1) == digits.test.labels
    assert right.float().mean().item() == pytest.approx(read(folder / "results.json")["accuracy_sparse"], abs=0.005)


def test_a_finished_run_has_no_next_stage(finished: tuple[Path, Done]) -> None:
    for verb in ("train", "prune"):
        done = said(verb, out=finished[0], device="cpu")
        assert done.code == 0 and "next:" not in done.out


def test_a_pruned_run_is_pruned_otherwise_in_another_folder_or_once_that_is_deleted(
    finished: tuple[Path, Done], tmp_path: Path
) -> None:
    done = said("prune", out=finished[0], flops=0.5, device="cpu")
    copying = "To prune it otherwise, copy config.json and sparse.safetensors to another folder"
    assert done.code == 1 and done.err.endswith(f"{copying}.\n")
    (tmp_path / "copy").mkdir()
    for name in ("config.json", "sparse.safetensors"):
        shutil.copy(finished[0] / name, tmp_path / "copy")
    assert said("prune", out=tmp_path / "copy", flops=0.5, device="cpu").code == 0
    refused = said("prune", out=tmp_path / "copy", flops=0.4, device="cpu")
    assert refused.err.endswith(f"{copying}, or delete pruned.safetensors here.\n")
    (tmp_path / "copy" / "pruned.safetensors").unlink()
    again = said("prune", out=tmp_path / "copy", flops=0.4, device="cpu")
    assert again.code == 0 and NONE_GOES not in again.out


def test_a_folder_of_runs_is_refused_with_their_names(tmp_path: Path) -> None:
    for name in ("lam1e-3-seed0", "lam1e-4-seed0"):
        claim(tmp_path / name, Experiment("vgg14", "cifar10"))
    done = said("prune", out=tmp_path)
    assert done.code == 1 and "holds the runs lam1e-3-seed0, lam1e-4-seed0: name one of them" in done.err


def test_a_run_that_failed_before_its_first_step_leaves_its_folder_free(tmp_path: Path) -> None:
    failed = otprune("train", epochs=1, batch=2000, lam=1e-2, out=tmp_path / "run")
    assert (failed.code, failed.err) == (
        1,
        "1347 images do not fill one batch of 2000: take a smaller one, with --batch\n",
    )
    done = otprune("train", epochs=1, hold_out=0.1, out=tmp_path / "run")
    assert done.code == 0, done.err
    found = configuration(tmp_path / "run")
    assert found is not None and (found.hold_out, found.training.batch, found.training.lam) == (0.1, 64, 1e-4)
    assert otprune("train", epochs=1, batch=32, out=tmp_path / "run").code == 1


def test_what_a_folder_without_steps_says_counts_where_model_and_data_are_not_given(tmp_path: Path) -> None:
    claim(tmp_path, resolved({**DIGITS, "training.lam": 1e-3}))
    assert resolved({}, folder=tmp_path).training.lam == 1e-3
    assert resolved(DIGITS, folder=tmp_path).training.lam == 1e-4
    (tmp_path / "train").mkdir()
    assert resolved(DIGITS, folder=tmp_path).training.lam == 1e-4
    (tmp_path / "train" / "at-00000-0000001.safetensors").touch()
    assert resolved(DIGITS, folder=tmp_path).training.lam == 1e-3
    with pytest.raises(TrainingError, match=r"belongs to a run with training\.lam=0\.001, not 0\.0001"):
        claim(tmp_path, Experiment("digits_net", "digits"))


def test_a_folder_of_images_says_where_its_settings_come_from_and_how_to_feed_it(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for label in ("dark", "light"):
            (tmp_path / "photos" / part / label).mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(tmp_path / "photos" / part / label / "1.png")
    (tmp_path / "net.py").write_text(NET)
    own: dict[str, object] = {"model": f"{tmp_path / 'net.py'}:build", "data": tmp_path / "photos", "batch": 2}
    done = run_here("train", **own, epochs=0, device="cpu", out=tmp_path / "run")
    assert done.code == 0, done.err
    why = "since the data is a folder of images; flags and --config overrule them"
    assert done.out.splitlines()[0] == f"settings of recipe ilsvrc, {why}"
    described = read(tmp_path / "run" / "data.json")
    assert described["classes"] == ["dark", "light"] and described["image_shape"] == [3, 224, 224]
    steps = "RGB, short side resized to 256, centre crop of 224, pixels divided by 255"
    assert described["preparation"].startswith(steps)


NET = """
from torch import nn

def build(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=8), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, num_classes),
    )
"""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "foo"}, "--rule must be one of 'ot', 'ns', not 'foo'"),
        ({"finetune_epochs": -1}, "--finetune-epochs must be at least 0, not -1"),
        ({"hold_out": 1}, "--hold-out must lie from 0 to below 1, not 1.0"),
        ({"flops": 40}, "--flops is a share of the original, above 0 and up to 1, not 40.0"),
    ],
    ids=str,
)
def test_a_wrong_value_is_told_of_its_flag(wrong: dict[str, object], message: str, tmp_path: Path) -> None:
    done = otprune("run", **wrong, out=tmp_path / "run")
    assert (done.code, done.err) == (1, f"{message}\n")


def test_a_wrong_value_in_a_file_is_told_of_its_setting(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[finetuning]\nepochs = -1")
    done = otprune("run", config=tmp_path / "my.toml", out=tmp_path / "run")
    assert (done.code, done.err) == (1, "finetuning.epochs must be at least 0, not -1\n")


def test_a_section_that_is_misspelt_is_compared_too(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[fine-tuning]\nepochs = 3")
    with pytest.raises(TrainingError, match=r"no setting fine-tuning\.epochs; did you mean finetuning\.epochs\?"):
        resolved(DIGITS, str(tmp_path / "my.toml"))


def test_a_file_in_place_of_a_folder_is_told_in_one_plain_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = otprune("train", epochs=0, out=tmp_path / "file")
    assert (done.code, done.err) == (1, f"{tmp_path / 'file'} is a file: name a folder\n")
    below = otprune("train", epochs=0, out=tmp_path / "file" / "run")
    assert below.code == 1 and below.err.startswith(f"{tmp_path / 'file' / 'run'}: not a directory. ")


def test_a_torch_dataset_that_is_not_wrapped_is_refused_with_how_to() -> None:
    images = TensorDataset(torch.zeros(2, 1, 4, 4), torch.tensor([0, 1]))
    with pytest.raises(TrainingError, match=r"a TensorDataset is not data.*: wrap it with StreamedDataset\.of\("):
        Run(nn.Linear(2, 2), images, Training())  # type: ignore[arg-type]


def test_a_model_saved_into_a_folder_that_there_is_not_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"there is no folder {tmp_path / 'nowhere'}; make it first"):
        ot.save(nn.Linear(2, 2), tmp_path / "nowhere" / "model.safetensors")


def test_a_terminal_that_does_not_know_greek_is_no_reason_to_fail(finished: tuple[Path, Done]) -> None:
    line = [sys.executable, "-m", "otprune", "train", "--out", str(finished[0]), "--device", "cpu"]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = subprocess.run(line, capture_output=True, text=True, env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert "steered" in done.stdout and "?" in done.stdout


def test_a_budget_met_by_choice_is_not_remarked_upon(finished: tuple[Path, Done]) -> None:
    asked = Experiment("digits_net", "digits", training=Training(target_flops=0.3), pruning=Pruning(flops=0.9))
    plan = ot.PruningPlan.load(finished[0] / "plan.json")
    gammas = {layer.name: [0.5] for layer in plan.layers}
    assert remarks(asked, plan, 0.9, gammas) == []
    within = Experiment("digits_net", "digits", training=Training(target_flops=0.3))
    assert remarks(within, plan, 0.314, gammas) == [NONE_GOES] and len(remarks(within, plan, 0.316, gammas)) == 2


def test_what_rounding_undoes_is_not_blamed_on_the_training() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1))
    net[1].weight.data[0] = 1e-9
    plan = ot.plan(net, torch.zeros(1, 1, 8, 8), round_to=4)
    steered = Experiment("net.py:build", "digits", training=Training(target_flops=0.8), pruning=Pruning(round_to=4))
    gammas = {"1": [1e-9, 1.0, 1.0, 1.0]}
    undone, missed, why = remarks(steered, plan, 1.0, gammas)
    assert undone == "no layer could lose a channel and keep a multiple of 4: choose a smaller --round-to"
    assert missed.startswith("asked for 80 % of the FLOPs, reached 100 %") and "without regard to --round-to 4" in why
    by_ratio = Experiment("net.py:build", "digits", pruning=Pruning(rule="ns", round_to=4))
    rounded = ot.plan(net, torch.zeros(1, 1, 8, 8), ot.GlobalRatio(0.5), round_to=4)
    assert remarks(by_ratio, rounded, 1.0, gammas) == [undone]


def test_a_ratio_that_ends_among_exact_zeros_says_which_takes_them() -> None:
    net = nn.Sequential(nn.Conv2d(1, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 1, 1))
    net[1].weight.data[:5] = 0
    gammas = {"1": net[1].weight.tolist()}

    def told(ratio: float) -> tuple[list[str], int]:
        plan = ot.plan(net, torch.zeros(1, 1, 8, 8), ot.GlobalRatio(ratio))
        asked = Experiment("net.py:build", "digits", pruning=Pruning(rule="ns", ratio=ratio))
        return remarks(asked, plan, 1.0, gammas), len(plan.layers[0].kept)

    (line,), kept = told(0.3)
    assert kept == 8 and line.startswith("62.5 % of the scaling factors are exactly zero, more than the ratio 0.3")
    assert line.endswith("--ratio 0.625 takes them") and told(0.625) == ([], 3)


class Spectrum(nn.Module):
    """Has an operator that no channel is followed through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).abs()


def test_what_holds_negligible_channels_is_told_after_pruning() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), Spectrum())
    gammas = {"1": [1.0, 1.0, 1e-7, 1e-7], "3": [1.0, 1e-7, 1e-7, 1e-7]}
    for name, gamma in gammas.items():
        net.get_submodule(name).get_parameter("weight").data.copy_(torch.tensor(gamma))
    plan = ot.plan(net, torch.zeros(1, 1, 8, 8), ot.OptimalThreshold())
    (told,) = remarks(Experiment("net.py:build", "digits"), plan, 0.5, gammas)
    assert re.fullmatch(
        r"3 negligible channels stay\. What holds channels here: aten\._fft_r2c.* has no rule \(.*\)", told
    )
