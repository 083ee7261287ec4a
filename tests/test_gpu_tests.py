"""The record of the tests that need a GPU says what became of each."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from tests.gpu_tests import _outcome, outcomes


def test_tests_are_told_by_file_and_name(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "tests/test_cutout.py")
    expected = "passed" if torch.cuda.is_available() else "skipped"
    assert {name: test["outcome"] for name, test in found.items()} == {
        "tests/test_cutout.py::test_a_gpu_cuts_the_same_squares": expected
    }


@pytest.mark.parametrize(
    ("inside", "outcome"),
    [("", "passed"), ("<failure message='no'/>", "failed"), ("<error/>", "failed"), ("<skipped/>", "skipped")],
)
def test_a_test_that_breaks_is_not_said_to_have_passed(inside: str, outcome: str) -> None:
    assert _outcome(ElementTree.fromstring(f"<testcase name='a' time='1.5'>{inside}</testcase>"))["outcome"] == outcome
