"""The long run's bookkeeping: it counts, it goes on where it stopped, and it never mixes two runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checking import Outcome
from tests.fuzz import Record, Result, accumulate, drawn, started


def result(index: int, outcome: Outcome | None, problem: str | None = None) -> Result:
    spec, mask = drawn(0, index)
    return Result(index, spec, mask, outcome, problem)


GOOD = Outcome(error=1e-12, bn_channels=10, masked=4, removed=3, reasons=("softmax",), informative=True)
IDLE = Outcome(error=0.0, bn_channels=5, masked=1, removed=0, reasons=("softmax", "output"), informative=False)
WRONG = Outcome(error=math.nan, bn_channels=2, masked=1, removed=1, reasons=(), informative=True)


def test_counts(tmp_path: Path) -> None:
    record = Record(seed=0, code="", provenance={})
    results = [result(0, GOOD), result(1, IDLE), result(2, WRONG, "differ by nan"), result(3, None, "KeyError")]
    accumulate(record, results, tmp_path / "fuzz.json")
    assert (record.networks, record.with_something_removed) == (4, 2)
    assert (record.bn_channels, record.masked, record.removed) == (17, 6, 4)
    assert record.largest_error == 1e-12
    assert record.frozen_reasons == {"softmax": 2, "output": 1}
    assert [failure["number"] for failure in record.failures] == [2, 3]
    assert sum(record.patterns.values()) > 0


def test_failures_can_be_drawn_again(tmp_path: Path) -> None:
    record = Record(seed=0, code="", provenance={})
    accumulate(record, [result(7, None, "KeyError")], tmp_path / "fuzz.json")
    (failure,) = json.loads((tmp_path / "fuzz.json").read_text())["failures"]
    spec, mask = drawn(0, 7)
    assert (failure["spec"], failure["mask"]) == (spec.to_json(), mask)


def test_goes_on_from_its_own_record(tmp_path: Path) -> None:
    path = tmp_path / "new" / "fuzz.json"
    record = started(0, path)
    assert record.networks == 0
    accumulate(record, [result(0, GOOD), result(1, IDLE)], path)
    again = started(0, path)
    assert again == record
    accumulate(again, [result(2, GOOD)], path)
    assert started(0, path).networks == 3


@pytest.mark.parametrize("change", [{"seed": 1}, {"code": "other"}, {"provenance": {"cpu": "other"}}])
def test_starts_afresh_after_a_change(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "fuzz.json"
    accumulate(started(0, path), [result(0, GOOD)], path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert started(0, path).networks == 0


def test_writes_every_fifty_networks(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.json"

    def breaks_off() -> Iterator[Result]:
        same = result(0, GOOD)
        for _ in range(60):
            yield same
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accumulate(started(0, path), breaks_off(), path)
    assert started(0, path).networks == 50
