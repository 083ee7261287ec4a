"""The page on faults says what the records of the long runs say."""

import json
from pathlib import Path

from tools.pages import ROOT
from tools.reliability_page import PAGE, SECTIONS, page


def test_the_page_is_up_to_date_with_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(ROOT / "results")


def test_the_page_follows_the_records(tmp_path: Path) -> None:
    record = json.loads((ROOT / "results" / "chaos.json").read_text(encoding="utf-8"))
    record |= {"survived": 123, "kills": 456}
    (tmp_path / "chaos.json").write_text(json.dumps(record), encoding="utf-8")
    made = page(tmp_path)
    assert "123 of 456 kills survived" in made
    assert made.count("not measured yet") == len(SECTIONS) - 1
