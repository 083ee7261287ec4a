"""The page on faults says what the records of the long runs say."""

import json
from pathlib import Path
from typing import Any

from tools.pages import ROOT
from tools.reliability_page import PAGE, SECTIONS, agreement, kills, on_a_gpu, page


def test_the_page_is_up_to_date_with_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(ROOT / "results")


def test_the_page_follows_the_records(tmp_path: Path) -> None:
    record = json.loads((ROOT / "results" / "chaos.json").read_text(encoding="utf-8"))
    record |= {"survived": 123, "kills": 456}
    (tmp_path / "chaos.json").write_text(json.dumps(record), encoding="utf-8")
    made = page(tmp_path)
    assert "123 of 456 kills survived" in made
    assert made.count("not measured yet") == len(SECTIONS) - 1


def test_kills_inside_a_write_are_those_that_found_a_file_in_flight() -> None:
    record = json.loads((ROOT / "results" / "chaos.json").read_text(encoding="utf-8")) | {
        "kills": 10,
        "kills_by_moment": {"time": 3, "rename a": 7},
        "kills_while_writing": {"nothing": 6, "a": 4, "b": 4},  # two files at once
    }
    assert "4 of them while a file was being written. The moments of 3 were drawn by the clock" in kills(record)


def test_what_differs_too_much_is_not_said_to_agree() -> None:
    def trained(network: str, precision: str, difference: float) -> dict[str, Any]:
        return {"network": network, "precision": precision, "largest_difference": difference}

    said = agreement([trained("smooth", "fp64", 2e-6), trained("plain", "fp64", 1e-9), trained("smooth", "fp32", 1e-7)])
    assert "1 of 2 results in fp64 agree, where the largest difference is 2.0e-06, and 1 of 1 in fp32" in said
    assert said.endswith("ends within 2.0e-06 in both.")


def test_a_test_that_failed_or_was_skipped_on_a_gpu_is_not_among_those_that_passed() -> None:
    ended = {"a.py::one": "passed", "a.py::two": "failed", "b.py::three": "skipped"}
    said = on_a_gpu({"tests": {name: {"outcome": outcome} for name, outcome in ended.items()}})
    assert said.startswith("**1 of 3 tests passed**") and "Failed: `a.py::two`. Skipped: `b.py::three`." in said
    assert "Without a result there: `tests/test_augment.py`, " in said
