"""Latency at the edge: the benchmark's networks beside the accuracies of their records."""

from pathlib import Path
from typing import Any

import pytest

from otprune.experiments.reproduce.needed import Needed, baseline, pruned
from otprune.experiments.reproduce.records import Records
from otprune.report.edge import edge, edge_latency, faster_at_the_edge
from otprune.report.verdicts import Verdict
from tests import made_records


def write(folder: Path, accuracy: float, times: float) -> Records:
    """An unpruned network of 93 %, and a pruned one that is so accurate and so many times as fast."""

    def make(needed: Needed) -> dict[str, Any]:
        record = made_records.record(needed)
        record["results"] |= {"accuracy_sparse": 0.93, "accuracy_finetuned": accuracy}
        return record

    made_records.write(folder, [baseline("cifar10", "vgg14"), pruned("cifar10", "vgg14", 2e-4)], make)
    made_records.write_latency(folder, times)
    return Records(folder)


@pytest.mark.parametrize(
    ("accuracy", "times", "expected"),
    [(0.931, 2.5, Verdict.HOLDS), (0.931, 2.4, Verdict.FAILS), (0.929, 2.5, Verdict.FAILS)],
)
def test_the_claim_asks_for_both_speed_and_accuracy(
    accuracy: float, times: float, expected: Verdict, tmp_path: Path
) -> None:
    claim = faster_at_the_edge(write(tmp_path, accuracy, times))
    assert claim.verdict is expected
    assert claim.evidence == f"lam2e-4-seed0: {times:.2f}×, {100 * (accuracy - 0.93):+.2f} points"


def test_the_table_has_every_network_that_has_a_record(tmp_path: Path) -> None:
    table, settings = edge(write(tmp_path, 0.931, 4.0))
    assert table.splitlines()[2:] == ["| lam2e-4-seed0 | fine-tuned | 93.10 | 1.0 | 2.00 (4.00×) |"]
    assert "Unpruned: 8.00 ms in OpenVINO; 93.00 % accuracy." in settings


def test_the_figure_is_drawn_once_there_is_something_to_draw(tmp_path: Path) -> None:
    assert list(edge_latency(Records(tmp_path))) == []
    sketch = next(edge_latency(write(tmp_path, 0.931, 4.0)))
    assert len(sketch.draw().axes) == 1
