"""What a network costs without its dead layers is measured on the network that was fine-tuned with them."""

import json
import sys
from pathlib import Path

import dead_layers
import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import FINETUNED
from otprune.experiments.pipeline import Pipeline
from tests.processes import DIGITS
from tests.small_runs import CPU

DEAD = 1e-7


class TwoBeside(nn.Module):
    """Two convolutions beside each other, of which one lets next to nothing through."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.loud, self.dead = (nn.Conv2d(1, 6, 3, bias=False) for _ in range(2))
        self.bn_loud, self.bn_dead = nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.head = nn.Conv2d(12, num_classes, 1)
        self.bn_dead.weight.data = DEAD * torch.linspace(1.0, 1.5, 6)

    def forward(self, x: Tensor) -> Tensor:
        beside = torch.cat([self.bn_loud(self.loud(x)), self.bn_dead(self.dead(x))], 1)
        return self.head(torch.relu(beside)).mean((2, 3))


def build(num_classes: int = 10) -> nn.Module:
    return TwoBeside(num_classes)


@pytest.fixture
def run(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(Experiment("tests.test_dead_layers_measured:build", "digits"), tmp_path / "run", DIGITS, CPU)
    model = pipeline.fresh_model()
    names = ("bn_loud", "bn_dead")
    pipeline.note(gammas={name: model.get_parameter(f"{name}.weight").tolist() for name in names})
    ot.save(model, pipeline.folder / FINETUNED)
    return pipeline


def test_dead_layers_are_found_by_the_threshold_of_the_whole_network_and_cost_what_they_cost(run: Pipeline) -> None:
    found = dead_layers.measure(run)
    assert found["silent"] == {"bn_dead": pytest.approx(1.5 * DEAD)} and 0.9 < found["threshold"] <= 1
    before, after = found["with"], found["without"]
    gone = 5 * (9 + 2 + 10)  # of each channel but one: its convolution, its batch norm, and what reads it
    assert before["parameters"] - after["parameters"] == gone and after["flops"] < before["flops"]
    assert before["accuracy_finetuned"] == after["accuracy_finetuned"] and found["largest_difference"] < 1e-6


def test_its_record_names_the_run_and_without_one_nothing_is_written(
    run: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "dead_layers.json"

    def measured(folder: Path) -> str:
        monkeypatch.setattr(sys, "argv", ["dead_layers.py", "--run", str(folder), "--json", str(record)])
        dead_layers.main()
        return capsys.readouterr().out

    assert "nothing to measure" in measured(tmp_path / "nowhere") and not record.exists()
    folder = run.folder
    assert "bn_dead" in measured(folder)
    assert json.loads(record.read_text())["configuration"]["run"] == folder.as_posix()
