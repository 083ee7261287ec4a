"""One input and what becomes of it, under a limit of time and of memory."""

from __future__ import annotations

import contextlib
import faulthandler
import resource
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Literal

from otprune.errors import OtpruneError
from tests.parser_fuzz.mutations import arbitrary, damaged
from tests.parser_fuzz.target import Target

Outcome = Literal["accepted", "refused"]

SECONDS = 60  # for one input, on a machine that is busy with other things
MORE_SECONDS = 60  # for the exception after that to come, before the process is ended
MEMORY = 3 << 30  # beyond what the process has when it begins
ARBITRARY = 0.1  # the share of inputs that are made from nothing


class TooLongError(Exception):
    """A parser has not come to an end."""


def drawn(rng: Random, target: Target) -> tuple[bytes, int]:
    """An input, and the number of the honest file that it was made from."""
    number = rng.randrange(len(target.samples))
    if rng.random() < ARBITRARY:
        return arbitrary(rng), number
    return damaged(rng, target.kind, target.samples[number], target.samples), number


def outcome(target: Target, content: bytes, number: int, folder: Path) -> Outcome:
    """Whether a parser accepts bytes or refuses them with an error of otprune; whatever else it raises is raised."""
    try:
        target.read(content, number, folder)
    except OtpruneError as error:
        if not str(error):
            raise ValueError("an error that says nothing") from error
        return "refused"
    return "accepted"


def problem(target: Target, content: bytes, number: int, folder: Path) -> tuple[Outcome | None, str | None]:
    """The outcome, or the traceback of what must not happen."""
    try:
        with _limited():
            return outcome(target, content, number, folder), None
    except Exception:
        return None, traceback.format_exc(limit=-8)


def limit_memory() -> None:
    """Let allocations beyond the limit fail, from now on, in this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """An exception after a while; where that does not help, since no Python runs, the process ends."""

    def stop(signal: int, frame: FrameType | None) -> None:
        raise TooLongError(f"not done after {SECONDS} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    faulthandler.dump_traceback_later(SECONDS + MORE_SECONDS, exit=True)
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
