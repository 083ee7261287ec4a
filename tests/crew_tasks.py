"""Tasks for a crew, each of which shows what one may do, and a process that begins some of them."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.crew.crew import Task, work_off
from otprune.experiments.crew.member import Freed, Tell, perform
from otprune.experiments.news import News, Said
from otprune.training.stopping import Interrupted, heed_one_request, stop_requests

PATIENCE = 60.0


class Heard:
    """What a follower was told."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.ends: dict[str, str | None] = {}

    def hear(self, news: News) -> None:
        self.news.append(news)

    def ended(self, run: str, error: str | None) -> None:
        self.ends[run] = error


def wait_for(path: Path, patience: float = PATIENCE) -> None:
    until = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < until, f"{path} was waited for in vain"
        time.sleep(0.05)


def mark(path: Path, tell: Tell) -> None:
    path.write_text(str(os.getpid()))
    tell(Said(path.name, "marked", [f"process {os.getpid()}"]))


def free_and_wait(freed: str, path: Path, patience: float, tell: Tell) -> None:
    """Ends well only when what it let begin leaves a file meanwhile."""
    tell(Freed(frozenset({freed})))
    wait_for(path, patience)


def fail(tell: Tell) -> None:
    raise TrainingError("it diverged")


def crash(tell: Tell) -> None:
    raise ValueError("a mistake\nin two lines")


def die(tell: Tell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_terminated(tell: Tell) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def stop_itself(tell: Tell) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)


def save_when_stopped(folder: Path, tell: Tell, taking: float = 0.0) -> None:
    """As a training does: what is asked is noted, and heard of between two steps."""
    with stop_requests() as stop:
        (folder / "begun").write_text(str(os.getpid()))
        until = time.monotonic() + PATIENCE
        while not stop.requested and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(taking)
        (folder / "saved").write_text("once")
    raise Interrupted("saved")


def never_stop(folder: Path, tell: Tell) -> None:
    """Deaf to everything but a kill."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (folder / "begun").write_text(str(os.getpid()))
    time.sleep(PATIENCE)


def save_after_a_long_step(folder: Path, tell: Tell, taking: float = 0.0) -> None:
    """As a training does whose step is a single call of a library: no request is heard of before it returns."""
    with stop_requests() as stop:
        (folder / "begun").write_text(str(os.getpid()))
        until = time.monotonic() + PATIENCE
        while not stop.requested and time.monotonic() < until:
            sum(range(int(taking * 5e7)))
        (folder / "saved").write_text("once")
    raise Interrupted("saved")


class HeardInFolders(Heard):
    """Leaves word of each task that begins, and of what it is said to be at."""

    def __init__(self, top: Path) -> None:
        super().__init__()
        self.top = top

    def hear(self, news: News) -> None:
        (self.top / news.run / (news.stage if isinstance(news, Said) else "heard")).touch()


def crew_of_two(top: Path, task: Callable[..., None], taking: float) -> None:
    """For a process of its own, which is stopped or killed; with `taking`, what the task does takes so many seconds."""
    os.setpgrp()  # as what is begun in a terminal
    folders = [top / "a", top / "b"]
    for folder in folders:
        folder.mkdir()
    tasks = [Task(folder.name, partial(task, folder, taking=taking)) for folder in folders]
    try:
        work_off(tasks, 2, HeardInFolders(top), top)
    except KeyboardInterrupt as stopped:
        (top / "told").write_text(str(stopped))


def asked_to_stop_before_they_begin(times: int, ends: Path) -> None:
    """Performs tasks that would go on for ever, and leaves word of how they ended, a line each."""
    ended = []
    for _ in range(times):
        here, there = Pipe()
        here.send(None)
        perform(lambda tell: time.sleep(PATIENCE), there, heed_one_request())
        ended.append(str(here.recv()))
    ends.write_text("\n".join(ended))
