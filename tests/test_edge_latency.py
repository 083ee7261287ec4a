"""Latency at the edge: the benchmark's networks beside the accuracies of their records."""

from pathlib import Path
from typing import Any

import pytest

from otprune.experiments.folder import read_json, write_json
from otprune.experiments.reproduce.needed import Needed, baseline, pruned
from otprune.experiments.reproduce.records import Records
from otprune.report.edge import edge, edge_latency, faster_with_little_loss, faster_without_loss
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
    [
        (0.938, 2.5, Verdict.HOLDS),
        (0.938, 2.4, Verdict.FAILS),
        (0.917, 2.5, Verdict.FAILS),
        (0.931, 2.5, Verdict.UNDECIDED),  # another training may be 0.7 points below, and then more than 0.5 are lost
        (0.924, 2.5, Verdict.UNDECIDED),
    ],
)
def test_the_claim_asks_for_both_speed_and_accuracy(
    accuracy: float, times: float, expected: Verdict, tmp_path: Path
) -> None:
    claim = faster_without_loss(write(tmp_path, accuracy, times))
    assert claim.verdict is expected
    gained = f"{times:.2f}× with {100 * (accuracy - 0.93):+.2f} points"
    told = f"the fastest that are so accurate: fine-tuned, λ=2e-4, {gained}"
    by_chance = ", which chance may explain" if expected is Verdict.UNDECIDED else ""
    assert claim.evidence == (told if accuracy > 0.925 else "no network is as accurate") + by_chance


@pytest.mark.parametrize(
    ("accuracy", "times", "expected"),
    [(0.891, 4.3, Verdict.HOLDS), (0.891, 4.2, Verdict.FAILS), (0.876, 4.3, Verdict.FAILS)],
)
def test_a_little_may_be_lost_where_more_is_gained(
    accuracy: float, times: float, expected: Verdict, tmp_path: Path
) -> None:
    """Five in a hundred of 93 %: down to 88.35 %."""
    assert faster_with_little_loss(write(tmp_path, accuracy, times)).verdict is expected


def test_the_way_that_a_network_was_trained_after_pruning_is_told(tmp_path: Path) -> None:
    """Fine-tuned it loses accuracy; the same architecture, from scratch, does not."""
    write(tmp_path, 0.92, 4.0)
    needed = pruned("cifar10", "vgg14", 2e-4)
    record = made_records.record(needed)
    record["results"] |= {"accuracy_sparse": 0.93, "accuracy_finetuned": 0.92, "accuracy_scratch": 0.94}
    made_records.write(tmp_path, [needed], lambda _: record)
    claim = faster_without_loss(Records(tmp_path))
    assert claim.verdict is Verdict.HOLDS and "from scratch, λ=2e-4, 4.00× with +1.00 points" in claim.evidence


def test_another_recipe_does_not_speak_for_the_paper(tmp_path: Path) -> None:
    records = write(tmp_path, 0.94, 4.0)
    place = tmp_path / "cifar10" / "vgg14" / "lam2e-4-seed0.json"
    assert faster_without_loss(records).verdict is Verdict.HOLDS
    content = read_json(place)
    content["experiment"]["training"]["target_flops"] = 0.4
    write_json(place, content)
    assert faster_without_loss(Records(tmp_path)).verdict is Verdict.OPEN


def test_the_table_has_every_network_that_has_a_record(tmp_path: Path) -> None:
    table, settings = edge(write(tmp_path, 0.931, 4.0))
    assert table.splitlines()[2:] == ["| λ=2e-4 | fine-tuned | 93.10 | 1.0 | 2.00 (4.00×) |"]
    assert "Unpruned: 8.00 ms in OpenVINO; 93.00 % accuracy." in settings


def test_the_figure_is_drawn_once_there_is_something_to_draw(tmp_path: Path) -> None:
    assert list(edge_latency(Records(tmp_path))) == []
    sketch = next(edge_latency(write(tmp_path, 0.931, 4.0)))
    assert len(sketch.draw().axes) == 1
