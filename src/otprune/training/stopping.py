"""Ctrl-C between two steps, never inside one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


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

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
