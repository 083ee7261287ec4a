"""At most so many tasks at a time, each in a process of its own; what fails or dies costs the others nothing."""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from otprune.errors import TrainingError
from otprune.experiments.crew.member import Ended, Freed, Tell, Word, begin, unreached_by_ctrl_c
from otprune.experiments.news import Began, Listener, Nobody, Said
from otprune.training.failures import SetAside
from otprune.training.stopping import SAVING_SECONDS, Interrupted, StopRequests, how_to_go_on, stop_requests

HERE = "this machine"
LOOK_EVERY_SECONDS = 0.5
SAVING = "saving"  # what a task is at then
KILLED = -9  # the exit code of a process that was, with no chance to say why
ENDING_SECONDS = 10.0  # what a process has to be gone in after its last word
STOPPED_BY_OTHERS = "was stopped, though not from here: give the same command again to go on"


@dataclass(frozen=True)
class Task:
    """Something to do in a process of its own, which it is sent to; it waits until the task `after` lets it begin.

    >>> Task("a", print).after
    ''
    """

    name: str
    do: Callable[[Tell], object]
    after: str = ""


@dataclass
class _Member:
    """A process, and how it ended, once it has said so."""

    task: Task
    process: BaseProcess
    words: "Connection[Any, Word]"
    ended: Ended | None = None
    until: float = math.inf  # that time it has to be gone, and with it what it had of a GPU


def work_off(tasks: Sequence[Task], processes: int, listener: Listener, folder: Path) -> None:
    """Do all tasks, the first ones first; at the end, when the others are done, what went wrong with some is raised.

    Ctrl-C lets those that are under way save themselves; `folder` is where they do. When this process is killed or
    fails, they do so, too.

    >>> work_off([], 2, listener=None, folder=Path("runs"))
    """
    _Crew(tasks, processes, listener, folder).work()


class _Crew:
    def __init__(self, tasks: Sequence[Task], processes: int, listener: Listener, folder: Path) -> None:
        self._tasks, self._processes, self._listener, self._folder = tasks, processes, listener, folder
        self._waiting = list(tasks)
        self._bound = {task.name for task in tasks if task.after}
        self._members: list[_Member] = []
        self._aside = SetAside(tasks)

    def work(self) -> None:
        with stop_requests() as stop:
            try:
                self._follow(stop)
                if stop.requested:
                    raise Interrupted(how_to_go_on(self._folder, self._let_all_save()))
            except Exception as error:  # it is this process that fails, and perhaps of its listener
                self._listener = Nobody()
                error.add_note(how_to_go_on(self._folder, self._let_all_save()))
                raise
            finally:
                for member in self._members:
                    _let_go(member)
        self._aside.errors.sort(key=lambda failed: self._tasks.index(failed[0]))
        self._aside.end()

    def _follow(self, stop: StopRequests) -> None:
        while (self._waiting or self._members) and not stop.requested:
            self._begin_some()
            for task, ended in self._listen():
                self._end(task, STOPPED_BY_OTHERS if ended.stopped else ended.error)

    def _begin_some(self) -> None:
        for task in [task for task in self._waiting if task.name not in self._bound]:
            if len(self._members) < self._processes:
                self._waiting.remove(task)
                self._begin(task)

    def _begin(self, task: Task) -> None:
        """In a fresh interpreter: what a GPU or a compiler has left in this one would not survive a fork."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=begin, args=(task.do, there), name=task.name)
        with unreached_by_ctrl_c():
            process.start()
        there.close()  # so that it is closed when the process ends
        self._members.append(_Member(task, process, here))
        self._listener.hear(Began(task.name, HERE, attempt=1))

    def _listen(self) -> Iterator[tuple[Task, Ended]]:
        """Hear what there is within a while; yield what is over, once its process is gone."""
        wait([member.words for member in self._members if member.ended is None], LOOK_EVERY_SECONDS)
        for member in list(self._members):
            gone = not member.process.is_alive() or time.monotonic() > member.until  # first: then all it said is there
            self._hear(member)
            if gone:
                self._members.remove(member)
                _let_go(member)
                yield member.task, member.ended or _died(member.process)

    def _hear(self, member: _Member) -> None:
        """All that a task has said by now; the last of it may be how it ended."""
        with suppress(EOFError, OSError):  # its process is no more
            while member.ended is None and member.words.poll():
                word = member.words.recv()
                if isinstance(word, Ended):
                    member.ended, member.until = word, time.monotonic() + ENDING_SECONDS
                elif isinstance(word, Freed):
                    self._bound -= word.tasks
                else:
                    self._listener.hear(word)

    def _end(self, task: Task, error: str | None) -> None:
        self._listener.ended(task.name, error)
        if error is not None:
            text = error if task.name in error else f"{task.name}: {error}"
            self._aside.errors.append((task, TrainingError(text)))
        for other in [other for other in self._waiting if other.after == task.name and other.name in self._bound]:
            self._waiting.remove(other)
            self._end(other, f"{other.name} was not begun: it needs what {task.name} was to make")

    def _let_all_save(self) -> dict[str, str]:
        """A second Ctrl-C does not wait for them. Returns those that could not, and why."""
        unsaved, until = {member.task.name: "" for member in self._members}, time.monotonic() + SAVING_SECONDS
        for name in unsaved:
            self._listener.hear(Said(name, SAVING, [f"{name}: asked to save; Ctrl-C again does not wait for it"]))
        for member in self._members:
            with suppress(OSError):  # its process is no more
                member.words.send(None)
        while self._members and time.monotonic() < until:
            for task, ended in self._listen():
                unsaved[task.name] = ended.error or ""
                if ended.error is None:
                    del unsaved[task.name]
        return unsaved


def _let_go(member: _Member) -> None:
    """See to it that the process is gone."""
    member.process.kill()
    member.process.join()
    member.words.close()


def _died(process: BaseProcess) -> Ended:
    code = process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    why = ", as happens where memory runs out: try again with fewer processes" if code == KILLED else ""
    return Ended(f"its process {how}{why}")
