"""A command in a process of its own, killed at a moment that chance chose."""

import multiprocessing
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.chaos.commands import Usual, telling
from tests.processes import start

LONGEST_DELAY = 0.002  # seconds, in which a small file is written and flushed
BY_TIME = 1 / 3  # of the kills; the others come when something is done with a file


@dataclass(frozen=True)
class Moment:
    """Some seconds after the start, or after the n-th time that something is done with a file of that name."""

    seconds: float
    operation: str | None = None
    count: int = 0

    def __str__(self) -> str:
        after = "the start" if self.operation is None else f"{self.operation} ({self.count})"
        return f"{self.seconds:.4f} s after {after}"


def drawn(chance: random.Random, usual: Usual) -> Moment:
    """A moment that an undisturbed run has."""
    if chance.random() < BY_TIME:
        return Moment(chance.uniform(0, usual.seconds))
    operation = chance.choice(sorted(set(usual.operations)))
    count = chance.randint(1, usual.operations.count(operation))
    return Moment(chance.uniform(0, LONGEST_DELAY), operation, count)


class Started:
    """A command at work in a folder."""

    def __init__(self, usual: Usual, folder: Path, err: Path) -> None:
        self._told, tell = multiprocessing.Pipe(duplex=False)
        arguments = (*usual.case.arguments, str(folder))
        self._process = start(telling, arguments, err.with_suffix(".out"), err, folder, tell)
        tell.close()  # so that there is an end to what is told when the process ends

    def killed_at(self, moment: Moment) -> bool:
        """Kill it then; whether it was still there to be killed."""
        if moment.operation is None:
            self._process.join(moment.seconds)
        elif self._heard(moment.operation, moment.count):
            time.sleep(moment.seconds)
        return killed(self._process)

    def ended(self) -> int | None:
        """Let it come to its end, and tell how it exited."""
        self._process.join()
        return self._process.exitcode

    def _heard(self, operation: str, count: int) -> bool:
        """Wait until it says so for the n-th time; it may end before."""
        for said in _said(self._told):
            count -= said == operation
            if count == 0:
                return True
        return False


def killed(process: BaseProcess) -> bool:
    """Kill a process, if it has not ended by itself."""
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def _said(told: Connection) -> Iterator[str]:
    while True:
        try:
            yield told.recv_bytes().decode()
        except EOFError:
            return
