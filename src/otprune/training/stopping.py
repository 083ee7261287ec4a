"""Ctrl-C between two steps, never inside one, and how to go on after it."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

SAVING_SECONDS = 120.0  # what runs in other processes have to save themselves after Ctrl-C

_asked = threading.Event()


class Interrupted(KeyboardInterrupt):
    """The user broke off, everything is saved, and the message says how to go on."""


@dataclass
class StopRequests:
    """Whether the user asked to stop."""

    requested: bool = False


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Note the first Ctrl-C (or SIGTERM) instead of breaking off at once; a second one breaks off.

    >>> with stop_requests() as stop:
    ...     stop.requested
    False
    """
    stop = StopRequests()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        _asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_was_asked() -> bool:
    """Whether this process has noted a request to stop; then a further one would break into the saving.

    >>> import os
    >>> with stop_requests():
    ...     os.kill(os.getpid(), signal.SIGINT)
    >>> stop_was_asked()
    True
    """
    return _asked.is_set()


def how_to_go_on(out: Path, unsaved: Mapping[str, str]) -> str:
    """`unsaved` has the runs that had to be left as they last were, and why; those without a reason were too slow.

    >>> how_to_go_on(Path("runs"), {"a": "no space left", "b": ""})
    'stopped and saved in runs, but for what was done since their last checkpoints by a (no space left), b: give ...'
    """
    named = ", ".join(f"{run} ({why})" if why else run for run, why in unsaved.items())
    but = f", but for what was done since their last checkpoints by {named}" if named else ""
    return f"stopped and saved in {out}{but}: give the same command again to go on"
