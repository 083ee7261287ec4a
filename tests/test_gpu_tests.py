"""The record of the tests that need a GPU says what became of each."""

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from tests.gpu_tests import PYTEST, _outcome, files_with_gpu_tests, outcomes
from tests.long_runs import ROOT


def test_every_file_with_a_test_for_a_gpu_is_found() -> None:
    command = [*PYTEST, "--collect-only", "tests"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert files_with_gpu_tests() == sorted({file for file, _, test in (line.partition("::") for line in told) if test})


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
