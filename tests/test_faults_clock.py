"""Clocks jump: names tell which checkpoint is newest, and a clock that only runs tells how long something took.

The time of day and the times of files belong to the user, to the machine that a folder was copied from, and to whoever
sets the clock. So checkpoints are numbered, and intervals are measured by the monotonic clock, which the system
never sets.
"""

import ast
import os
import random
import time
from pathlib import Path

import pytest

from otprune.training.checkpoint import checkpoints
from otprune.training.loop import train
from tests.chaos.sameness import differences
from tests.checkpoint_files import SHORT, assert_same_end, broken_off
from tests.command_line import results, run_here
from tests.processes import training_run

SOURCE = Path(__file__).parent.parent / "src"
LONG_AGO, FAR_AHEAD = 0, 4e9
TIMES_OF_DAY = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now"}
TIMES_OF_FILES = {"st_mtime", "st_ctime", "st_atime", "st_mtime_ns", "st_ctime_ns", "getmtime", "getctime"}
ALLOWED = {
    "board.py": ["time.time"],  # TensorBoard puts the second into the names of its files: the next is waited for
    "mirror.py": ["found.st_mtime_ns"],  # asks whether a file is another, by its number as well, never which is later
}


@pytest.mark.parametrize("times", [(FAR_AHEAD, LONG_AGO), (LONG_AGO, FAR_AHEAD), (FAR_AHEAD, FAR_AHEAD)])
def test_the_newest_checkpoint_is_gone_on_from_and_kept_whatever_the_times_of_files(
    times: tuple[float, float], tmp_path: Path
) -> None:
    train(training_run(tmp_path / "whole", SHORT))
    broken_off(tmp_path / "run", after=2)
    for path, moment in zip(checkpoints(tmp_path / "run"), times, strict=True):
        os.utime(path, (moment, moment))
    last = checkpoints(tmp_path / "run")[-1]
    run = training_run(tmp_path / "run", SHORT)
    run.save()
    assert checkpoints(tmp_path / "run")[-1] == last and f"at-{run.epoch:05d}-" in last.name
    train(run, save_every=0)
    assert_same_end(tmp_path / "run", tmp_path / "whole")
    assert len(checkpoints(tmp_path / "run")) == 2


def test_a_run_while_the_clock_jumps_is_the_same_and_takes_no_negative_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"model": "tests.small_runs:net", "data": "digits", "device": "cpu", "epochs": 2, "finetune_epochs": 1}
    assert run_here("run", **settings, out=tmp_path / "whole").code == 0
    chance = random.Random(0)
    monkeypatch.setattr(time, "time", lambda: chance.uniform(LONG_AGO, FAR_AHEAD))
    assert run_here("run", **settings, out=tmp_path / "run").code == 0
    assert not list(differences(tmp_path / "run", tmp_path / "whole"))
    spent = results(tmp_path / "run")["seconds"]
    assert all(0 < spent[stage] < 600 for stage in ("train", "prune", "finetune"))


def test_nothing_depends_on_the_time_of_day_or_the_times_of_files() -> None:
    found: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and (ast.unparse(node) in TIMES_OF_DAY or node.attr in TIMES_OF_FILES):
                found.setdefault(path.name, []).append(ast.unparse(node))
    assert found == ALLOWED
