"""The record of the tests that need a GPU says what became of each."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from tests.gpu_tests import _outcome, files_with_gpu_tests, outcomes
from tests.long_runs import ROOT


def test_every_file_with_a_test_for_a_gpu_is_found(request: pytest.FixtureRequest) -> None:
    """Of the files that pytest has looked into, which are all of them where nobody asked for some."""
    items = request.session.items
    looked_into, marked = (
        {item.path.relative_to(ROOT).as_posix() for item in chosen}
        for chosen in (items, [item for item in items if item.get_closest_marker("gpu")])
    )
    assert [file for file in files_with_gpu_tests() if file in looked_into] == sorted(marked)


def test_tests_are_told_by_file_and_name(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "tests/test_cutout.py")
    expected = "passed" if torch.cuda.is_available() else "skipped"
    assert {name: test["outcome"] for name, test in found.items()} == {
        "tests/test_cutout.py::test_a_gpu_cuts_the_same_squares": expected
    }


def test_a_file_that_hangs_has_failed(tmp_path: Path) -> None:
    file = "tests/test_cutout.py"
    assert outcomes(tmp_path, file, limit=0.01) == {file: {"outcome": "failed", "message": "not done after 0.01 s"}}


@pytest.mark.parametrize(
    ("inside", "outcome"),
    [("", "passed"), ("<failure message='no'/>", "failed"), ("<error/>", "failed"), ("<skipped/>", "skipped")],
)
def test_a_test_that_breaks_is_not_said_to_have_passed(inside: str, outcome: str) -> None:
    assert _outcome(ElementTree.fromstring(f"<testcase name='a' time='1.5'>{inside}</testcase>"))["outcome"] == outcome
