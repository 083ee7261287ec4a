"""A crew has processes of its own for tasks: what fails or dies costs the others nothing, and all can be stopped."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from otprune.experiments.crew import crew
from otprune.experiments.crew.crew import Task, work_off
from otprune.experiments.crew.member import BROKEN_OFF, Ended
from otprune.experiments.news import Began, Said
from otprune.training.failures import RunsFailed
from tests import crew_tasks, processes
from tests.crew_tasks import Heard, wait_for


def crew_of_two(
    top: Path, until: str = "begun", task: Callable[..., None] = crew_tasks.save_when_stopped, taking: float = 0.0
) -> processes.BaseProcess:
    """Under way."""
    process = processes.start(crew_tasks.crew_of_two, top, task, taking)
    for name in ("a", "b"):
        wait_for(top / name / until)
    return process


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


def test_what_fails_or_dies_is_named_at_the_end_and_the_others_are_done(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heard, mark = Heard(), partial(partial, crew_tasks.mark)
    tasks = [
        Task("fails", crew_tasks.fail),
        Task("is-in-vain", mark(tmp_path / "in-vain"), after="fails"),
        Task("dies", crew_tasks.die),
        Task("is-ended", crew_tasks.is_terminated),
        Task("crashes", crew_tasks.crash),
        Task("is-stopped", crew_tasks.stop_itself),
        Task("is-done", mark(tmp_path / "done")),
    ]
    with pytest.raises(RunsFailed) as failed:
        work_off(tasks, 2, heard, tmp_path)
    assert str(failed.value).splitlines() == [
        "fails: it diverged",
        "is-in-vain was not begun: it needs what fails was to make",
        "dies: its process was killed by signal 9, as happens where memory runs out: try again with fewer processes",
        "is-ended: its process was killed by signal 15",
        "crashes: ValueError: a mistake",
        "is-stopped: was stopped, though not from here: give the same command again to go on",
    ]
    assert heard.ends.keys() == {task.name for task in tasks} and heard.ends["is-done"] is None
    assert not (tmp_path / "in-vain").exists() and (tmp_path / "done").read_text() != str(os.getpid())
    assert Said("done", "marked", [f"process {(tmp_path / 'done').read_text()}"]) in heard.news
    assert "in crash\n    raise ValueError" in capfd.readouterr().err


def test_what_waits_begins_while_what_it_waited_for_goes_on(tmp_path: Path) -> None:
    heard, begun = Heard(), tmp_path / "begun"
    tasks = [
        Task("first", partial(crew_tasks.free_and_wait, "second", begun, 60.0)),
        Task("second", partial(crew_tasks.mark, begun), after="first"),
    ]
    work_off(tasks, 2, heard, tmp_path)
    assert heard.ends == {"first": None, "second": None}
    assert [news.run for news in heard.news if isinstance(news, Began)] == ["first", "second"]


def test_no_more_are_at_work_than_asked_for(tmp_path: Path) -> None:
    """Else the first would see the second begin, and end well."""
    tasks = [
        Task("first", partial(crew_tasks.free_and_wait, "", tmp_path / "begun", 2.0)),
        Task("second", partial(crew_tasks.mark, tmp_path / "begun")),
    ]
    with pytest.raises(RunsFailed, match=r"first: AssertionError: .* was waited for in vain"):
        work_off(tasks, 1, Heard(), tmp_path)
    assert (tmp_path / "begun").exists()


def test_ctrl_c_lets_all_save_themselves_once_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = crew_of_two(tmp_path)
    os.kill(process.pid or 0, signal.SIGINT)
    process.join()
    assert [(tmp_path / name / "saved").read_text() for name in ("a", "b")] == ["once", "once"]
    assert all((tmp_path / name / crew.SAVING).exists() for name in ("a", "b"))
    told = (tmp_path / "told").read_text()
    assert told == f"stopped and saved in {tmp_path}: give the same command again to go on"


@pytest.mark.parametrize("task", [crew_tasks.save_when_stopped, crew_tasks.save_after_a_long_step])
def test_a_stop_that_reaches_crew_and_tasks_alike_does_not_break_into_their_saving(
    task: Callable[..., None], tmp_path: Path
) -> None:
    process = crew_of_two(tmp_path, task=task, taking=2.0)
    pids = [int((tmp_path / name / "begun").read_text()) for name in ("a", "b")]
    for pid in (process.pid or 0, *pids):
        os.kill(pid, signal.SIGTERM)
    process.join()
    assert [(tmp_path / name / "saved").read_text() for name in ("a", "b")] == ["once", "once"]
    assert "but for" not in (tmp_path / "told").read_text()


def test_ctrl_c_in_a_terminal_kills_no_task_that_is_only_starting(tmp_path: Path) -> None:
    process = crew_of_two(tmp_path, until="heard")
    os.killpg(process.pid or 0, signal.SIGINT)
    process.join()
    told = (tmp_path / "told").read_text()
    assert told.startswith(f"stopped and saved in {tmp_path}") and "process" not in told


def test_what_is_asked_to_stop_as_it_begins_says_that_it_did(tmp_path: Path) -> None:
    processes.finish(crew_tasks.asked_to_stop_before_they_begin, 300, tmp_path / "ends")
    ended = (tmp_path / "ends").read_text().splitlines()
    assert len(ended) == 300 and set(ended) == {str(Ended(BROKEN_OFF, stopped=True))}


def test_when_a_crew_fails_its_tasks_save_themselves_before_that_is_raised(tmp_path: Path) -> None:
    class Broken(Heard):
        def hear(self, news: object) -> None:
            if isinstance(news, Said):
                wait_for(tmp_path / "begun")
                raise ValueError("the screen is gone")

    tasks = [
        Task("saves", partial(crew_tasks.save_when_stopped, tmp_path)),
        Task("talks", partial(crew_tasks.mark, tmp_path / "talked")),
    ]
    with pytest.raises(ValueError, match="the screen is gone") as failed:
        work_off(tasks, 2, Broken(), tmp_path)
    assert failed.value.__notes__ == [f"stopped and saved in {tmp_path}: give the same command again to go on"]
    assert (tmp_path / "saved").read_text() == "once"


def test_when_a_crew_is_killed_its_processes_save_themselves_and_end(tmp_path: Path) -> None:
    process = crew_of_two(tmp_path)
    pids = [int((tmp_path / name / "begun").read_text()) for name in ("a", "b")]
    process.kill()
    for name in ("a", "b"):
        wait_for(tmp_path / name / "saved")
    until = time.monotonic() + crew_tasks.PATIENCE
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_what_does_not_stop_in_time_is_killed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "SAVING_SECONDS", 1.0)

    class Impatient(Heard):
        def hear(self, news: object) -> None:
            if isinstance(news, Began):
                wait_for(tmp_path / "begun")
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="but for what was done since their last checkpoints by deaf: give"):
        work_off([Task("deaf", partial(crew_tasks.never_stop, tmp_path))], 1, Impatient(), tmp_path)
    pid = int((tmp_path / "begun").read_text())
    assert not is_running(pid)
