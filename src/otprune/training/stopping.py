"""Ctrl-C between two steps, never inside one, and how to go on after it."""

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ECHO_SECONDS = 0.5  # within which a second request is part of the first
SAVING_SECONDS = 120.0  # what runs in other processes have to save themselves after Ctrl-C


class Interrupted(KeyboardInterrupt):
    """The user broke off, everything is saved, and the message says how to go on."""


@dataclass
class StopRequests:
    """Whether the user asked to stop."""

    requested: bool = False
    at: float = -math.inf

    def note(self) -> bool:
        """Note a request. Whether there was one before, which this one is no echo of.

        Who stops a process and its group, as timeout does, sends it two at once.

        >>> stop = StopRequests()
        >>> stop.note(), stop.note(), stop.requested
        (False, False, True)
        """
        again = self.requested and time.monotonic() - self.at > ECHO_SECONDS
        if not self.requested:
            self.requested, self.at = True, time.monotonic()
        return again


_only: StopRequests | None = None  # of this process, where one request is all that it heeds


def heed_one_request() -> StopRequests:
    """From now on, the first Ctrl-C (or SIGTERM while something trains) stops this process, and all others are ignored.

    For a process that is ended from outside where it does not stop: then a further request has nothing to add, and is
    not to break into what the first made it save. Once what is returned is `requested`, none is heeded.

    tests/test_crew.py shows it at work.
    """
    global _only
    _only = only = StopRequests()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not only.requested:
            only.requested = True
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    return only


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Note the first Ctrl-C (or SIGTERM) instead of breaking off at once; a second one breaks off.

    >>> with stop_requests() as stop:
    ...     stop.requested
    False
    """
    stop = _only or StopRequests()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.note() and stop is not _only:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def how_to_go_on(out: Path, unsaved: Mapping[str, str]) -> str:
    """`unsaved` has the runs that had to be left as they last were, and why; those without a reason were too slow.

    >>> how_to_go_on(Path("runs"), {"a": "no space left", "b": ""})
    'stopped and saved in runs, but for what was done since their last checkpoints by a (no space left), b: give ...'
    """
    named = ", ".join(f"{run} ({why})" if why else run for run, why in unsaved.items())
    but = f", but for what was done since their last checkpoints by {named}" if named else ""
    return f"stopped and saved in {out}{but}: give the same command again to go on"
