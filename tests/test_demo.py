"""The demo in short, real runs, and once in full through the command line, held to what it promises."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from typer.testing import CliRunner

from benchmarks import demo_settings
from otprune import demo
from otprune.cli import app
from otprune.demo_screen import Screen
from tools.readme_tables import ROOT

SHORT = demo.Settings(epochs=3, fine_tune_epochs=1, latency_rounds=3)


def run_short(seed: int) -> tuple[dict[str, Any], str]:
    text = StringIO()
    settings = demo.Settings(**{**vars(SHORT), "seed": seed})
    return demo.run(settings, Screen(Console(file=text, width=100))), text.getvalue()


@pytest.fixture(scope="module")
def short_run() -> tuple[dict[str, Any], str]:
    return run_short(seed=0)


def accuracies(record: dict[str, Any]) -> list[float]:
    return [row["accuracy"] for row in record["results"]["rows"]]


def test_split_keeps_the_share_of_every_digit_and_depends_on_nothing() -> None:
    first, second = demo.load(0.25), demo.load(0.25)
    held_back = torch.bincount(first.held_out_labels)
    all_labels = torch.bincount(torch.cat([first.train.tensors[1], first.held_out_labels]))
    assert torch.equal(first.held_out_images, second.held_out_images)
    assert all_labels.sum() == 1797
    assert (held_back - 0.25 * all_labels).abs().max() < 1


def test_short_run_learns_and_shows_every_stage(short_run: tuple[dict[str, Any], str]) -> None:
    record, text = short_run
    before, *pruned = record["results"]["rows"]
    assert accuracies(record)[-1] > 0.5
    assert len({(row["parameters"], row["flops"], row["macs"], row["latency_ms"]) for row in pruned}) == 1
    assert pruned[-1]["flops"] <= before["flops"]
    for shown in ("training with the penalty", "fine-tuning", "loss", "blocks.0.bn1", f"{before['flops']:,}", "All in"):
        assert shown in text


def test_same_seed_gives_the_same_numbers_and_another_seed_others(short_run: tuple[dict[str, Any], str]) -> None:
    record, _ = short_run
    assert accuracies(run_short(seed=0)[0]) == accuracies(record)
    assert accuracies(run_short(seed=1)[0]) != accuracies(record)


def test_record_says_how_it_was_made_and_survives_its_file(
    short_run: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    record, _ = short_run
    demo.write(record, tmp_path / "new" / "record.json")
    read_back = json.loads((tmp_path / "new" / "record.json").read_text(encoding="utf-8"))
    assert read_back == record
    assert read_back["seed"] == 0
    assert read_back["configuration"]["epochs"] == SHORT.epochs
    assert read_back["provenance"]["torch"] == torch.__version__


def as_set(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def test_settings_are_chosen_on_training_images_alone() -> None:
    demonstration, choosing = demo.load(demo.Settings().test_share), demo_settings.validation_digits()
    test, learnt, validated = map(
        as_set, (demonstration.held_out_images, choosing.train.tensors[0], choosing.held_out_images)
    )
    assert not test & (learnt | validated)
    assert not learnt & validated
    assert len(learnt | validated | test) == 1797


def test_settings_are_those_that_the_rule_chose_from_the_record() -> None:
    record = json.loads((ROOT / "results" / "demo_settings.json").read_text(encoding="utf-8"))
    trials = {
        demo_settings.Choice(**point["choice"]): [demo_settings.Trial(**trial) for trial in point["seeds"]]
        for point in record["results"]["grid"]
    }
    chosen = demo_settings.choose(trials)
    assert record["rule"] == demo_settings.RULE
    assert record["results"]["chosen"] == vars(chosen)
    assert {name: getattr(demo.Settings(), name) for name in vars(chosen)} == vars(chosen)
    assert {name: getattr(demo.Settings(), name) for name in record["configuration"]["fixed"]} == record[
        "configuration"
    ]["fixed"]


SMALL = demo_settings.Trial(seed=0, unpruned=0.99, recalibrated=0.98, fine_tuned=0.99, flops=100, flops_ratio=9.0)


@pytest.mark.parametrize(
    "flaw",
    [{"fine_tuned": 0.979}, {"fine_tuned": 0.984}, {"recalibrated": 0.95}, {"flops_ratio": 2.9}],
    ids=["loses more than a point", "loses half a point on average", "not repaired", "not small"],
)
def test_the_rule_takes_the_smallest_network_that_has_no_flaw(flaw: dict[str, float]) -> None:
    small, large = demo_settings.Choice(2e-2, 30, 5, 0.01), demo_settings.Choice(1e-2, 30, 5, 0.01)
    trials = {large: [replace(SMALL, flops=200)], small: [SMALL]}
    assert demo_settings.choose(trials) == small
    assert demo_settings.choose(trials | {small: [replace(SMALL, **flaw)]}) == large


class Slow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01)
        return x


def test_latencies_belong_to_their_models_and_skip_the_warm_up() -> None:
    slow, fast = demo.latencies_ms([Slow(), nn.Identity()], torch.zeros(1), rounds=3)
    assert slow >= 10
    assert fast < 10


def test_the_full_demo_keeps_its_promise(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    command = [sys.executable, "-W", "error", "-m", "otprune", "demo", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = {row["model"]: row for row in record["results"]["rows"]}
    before, recalibrated, after = (rows[name] for name in ("before pruning", "+ recalibrated", "+ fine-tuned"))
    assert before["accuracy"] > 0.97
    assert before["flops"] / after["flops"] >= 3
    assert after["accuracy"] >= before["accuracy"] - 0.01
    assert recalibrated["accuracy"] >= before["accuracy"] - 0.03  # with no training at all
    assert record["results"]["seconds"] < 120
    assert "fewer FLOPs" in done.stdout


def test_other_seeds_without_a_record_to_add_them_to_are_refused() -> None:
    result = CliRunner().invoke(app, ["demo", "--other-seeds", "4"])
    assert result.exit_code == 2
    assert "--json" in result.stderr and result.stdout == ""


def test_version_is_that_of_the_installed_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"otprune {version('otprune')}\n"


@pytest.mark.parametrize(("package", "extra"), [("typer", "cli"), ("rich", "cli"), ("sklearn", "demo")])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package: str, extra: str) -> None:
    without = f"import sys; sys.modules[{package!r}] = None; sys.argv[1:] = ['demo']"
    code = f"{without}; from otprune.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"otprune[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr
