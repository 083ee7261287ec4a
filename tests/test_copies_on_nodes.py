"""What a killed task leaves on its node goes with the next one there, and what is in use never does."""

import tempfile
import time
from multiprocessing.util import get_temp_dir
from pathlib import Path

import pytest

from otprune.experiments.cluster.copies import place_for_a_copy, remove_abandoned
from otprune.experiments.cluster.store import Store
from otprune.experiments.cluster.work import Assignment, perform
from tests.processes import start
from tests.small_runs import EXPERIMENT


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of its own."""
    place = tmp_path / "tmp"
    place.mkdir()
    get_temp_dir()  # of the server that processes are forked from, which outlives the test
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def work_for_long(node: Path) -> None:
    """As a task does, until it is killed."""
    tempfile.tempdir = str(node)
    with place_for_a_copy() as place:
        (place / "run").mkdir()
        (place / "run" / "config.json").touch()
        time.sleep(60)


def test_the_copy_of_a_killed_task_goes_with_the_next_one_and_not_before(node: Path, tmp_path: Path) -> None:
    task = start(work_for_long, node)
    while task.is_alive() and not list(node.glob("*/run/config.json")):
        time.sleep(0.01)
    with place_for_a_copy():
        copies = list(node.glob("*/run/config.json"))
    task.kill()
    task.join()
    [copy] = copies  # while it was in use
    assert copy.exists()
    assert perform(Assignment(tmp_path / "a", EXPERIMENT), Store(tmp_path, ["a"]), "node") is None
    assert not list(node.glob("otprune-*"))


def test_a_task_does_not_take_its_own_for_abandoned(node: Path) -> None:
    with place_for_a_copy() as place:
        (place / "run").mkdir()
        for _ in range(2):  # looking must not let go of it either
            remove_abandoned(node)
            assert (place / "run").exists()


@pytest.mark.parametrize("name", ["otprune-mine/notes", "otprune-mine/.in-use", "other/.in-use"])
def test_what_is_no_copy_of_a_task_stays(name: str, node: Path) -> None:
    (node / name).parent.mkdir()
    (node / name).touch()
    remove_abandoned(node)
    assert (node / name).exists()
