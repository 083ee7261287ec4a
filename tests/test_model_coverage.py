"""The run over the models of other libraries, on the smallest of them, and the page made of it."""

import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from model_coverage import __main__ as coverage
from model_coverage import attempt
from model_coverage.batch_norms import settle, zero
from model_coverage.catalogue import all_subjects
from model_coverage.masks import agreeing, independent
from model_coverage.outcome import Outcome
from model_coverage.page import page
from model_coverage.summary import failures, removed_less, summary
from torch import nn

from tests import processes
from tools.coverage_page import PAGE, RESULTS, fresh_page

KEY = "timm:test_resnet"


@pytest.fixture(autouse=True)
def one_server_for_all() -> None:
    """Processes of other tests are forked from the same server: it imports what they need too, whoever starts it."""
    multiprocessing.set_forkserver_preload([attempt.__name__, processes.__name__])


class Branching(nn.Module):
    """A sum of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32))
        self.right = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32))
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.left(x) + self.right(x)))


def run(monkeypatch: pytest.MonkeyPatch, results: Path, *options: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["model_coverage", "--only", KEY, "--results", str(results), *options])
    coverage.main()
    models: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))["models"]
    return models[KEY]


def made(status: str = "exact", removed: int = 4, error: float | None = 1e-15) -> dict[str, Any]:
    outcome = vars(Outcome(status, "", 10, 5, removed, error, 0.1))
    return {"agreeing": outcome, "independent": outcome}


def test_the_committed_page_is_up_to_date_with_the_results() -> None:
    assert fresh_page(RESULTS) == PAGE.read_text(encoding="utf-8"), "run `make coverage`"


def test_both_tools_prune_a_model_exactly_and_a_second_run_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run(monkeypatch, tmp_path / "results.json")
    for tool in ("otprune", "torch_pruning"):
        assert [outcome["status"] for outcome in record[tool].values()] == ["exact", "exact"]
    assert record["otprune"]["agreeing"]["removed"] == record["otprune"]["agreeing"]["zeroed"]
    assert run(monkeypatch, tmp_path / "results.json") == record
    assert "1 models, 1 of them measured before" in capsys.readouterr().out


def test_a_run_that_takes_too_long_is_stopped_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(monkeypatch, tmp_path / "results.json", "--limit-s", "0", "--otprune-only")
    assert [outcome["status"] for outcome in record["otprune"].values()] == ["timed out", "timed out"]


def test_every_model_is_in_the_catalogue_once() -> None:
    keys = [subject.key for subject in all_subjects()]
    assert len(keys) == len(set(keys)) > 200


def test_half_of_the_channels_are_drawn_and_a_sum_makes_them_agree() -> None:
    model, x = Branching(), torch.randn(2, 3, 8, 8)
    agreed, alone = agreeing(model, x, 0), independent(model, ("left.1", "right.1"), 0)
    assert agreed["left.1"] == agreed["right.1"] and alone["left.1"] != alone["right.1"]
    assert all(len(channels) == 16 for mask in (agreed, alone) for channels in mask.values())


def test_settled_batch_norms_normalize_the_example_and_zeroed_channels_are_zero() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).double().eval(), torch.randn(2, 3, 8, 8).double()
    settle(model, x)
    out = (model(x) - model[1].bias[:, None, None]) / model[1].weight[:, None, None]
    torch.testing.assert_close(out.var((0, 2, 3), correction=0), torch.ones(4).double(), rtol=1e-2, atol=0)
    zero(model, {"1": [0, 3]})
    assert [int(c) for c in model(x).flatten(2).any(2)[0].nonzero()] == [1, 2]


def test_the_page_and_the_lists_follow_the_records() -> None:
    records = {
        "timm:good": {"otprune": made(), "torch_pruning": made(removed=3)},
        "timm:bad": {"otprune": made("wrong", error=0.5), "torch_pruning": made()},
    }
    provenance = dict.fromkeys(("torch", "python", "gpu", "cpu", "cores"))
    content = {"models": records, "versions": {"timm": "1"}, "provenance": provenance}
    text = page(content)
    assert "| good | 10 | 5 | 80.0 % | 1e-15 | 1e-15 | 0.1 | 60.0 % |" in text and "`timm:bad`: wrong" in text
    assert removed_less(records) == ["timm:bad"]
    assert "timm:bad: **wrong**" in failures(records)
    assert summary(records).splitlines()[2].split() == ["timm", "otprune", *"110000", "40.0", "%"]


def test_what_was_not_measured_is_counted_and_has_no_part_in_the_share() -> None:
    records = {
        "timm:a": {"otprune": made(), "torch_pruning": made(removed=3)},
        "timm:b": {"otprune": made(), "torch_pruning": None},
        "smp:c": {"otprune": made(), "torch_pruning": None},
    }
    rows = [line.split() for line in summary(records).splitlines()[2:6]]
    assert rows[1] == ["timm", "Torch-Pruning", *"100001", "60.0", "%"]
    assert rows[3] == ["smp", "Torch-Pruning", *"000001", "–"]
