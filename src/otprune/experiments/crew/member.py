"""What goes on in a process of a crew: one task, stopped when who began it asks so or is no more."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import torch

from otprune.errors import OtpruneError
from otprune.experiments.news import News
from otprune.training.failures import in_one_line, of_the_system
from otprune.training.stopping import Interrupted, StopRequests, heed_one_request

SHORT_OF_MEMORY = "Give the same command again with fewer --processes, or with fewer --together."
BROKEN_OFF = "it was not training when it was stopped"


@dataclass(frozen=True)
class Freed:
    """These tasks, which waited for this one, can begin."""

    tasks: frozenset[str]


@dataclass(frozen=True)
class Ended:
    """The task is over: done, or with an error, or stopped as it was asked to be; an error, then, is what was lost."""

    error: str | None = None
    stopped: bool = False


Word = News | Freed | Ended
Tell = Callable[[Word], None]


def perform(do: Callable[[Tell], object], words: "Connection[Word, Any]", stop: StopRequests) -> None:
    """Do a task, which is given a way to tell of it; the last word is how it ended, and no `stop` is heeded any more.

    >>> from multiprocessing import Pipe
    >>> here, there = Pipe()
    >>> perform(lambda tell: tell(Freed(frozenset({"b"}))), there, StopRequests())
    >>> here.recv(), here.recv()
    (Freed(tasks=frozenset({'b'})), Ended(error=None, stopped=False))
    """

    def tell(word: Word) -> None:
        with suppress(OSError):  # nobody listens any more, and `_stop_when_asked` is about to say so
            words.send(word)

    def do_until_asked_to_stop() -> None:
        threading.Thread(target=_stop_when_asked, args=(words, stop), daemon=True).start()  # it may be asked at once
        do(tell)

    tell(_ended(do_until_asked_to_stop, stop))


def begin(do: Callable[[Tell], object], words: "Connection[Word, Any]") -> None:
    """`perform` in a fresh process, which a Ctrl-C in the terminal is to reach by way of its crew alone.

    It is begun inside `unreached_by_ctrl_c`. tests/test_crew.py shows it at work.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops what has come so far
    if hasattr(os, "setsid"):
        os.setsid()
    stop = heed_one_request()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    perform(do, words, stop)


@contextmanager
def unreached_by_ctrl_c() -> Iterator[None]:
    """What is begun in here leaves a Ctrl-C alone until it says otherwise, and so does this process meanwhile.

    >>> with unreached_by_ctrl_c():
    ...     pass
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would let Ctrl-C through again once it has begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(do: Callable[[], object], stop: StopRequests) -> Ended:
    try:
        try:
            do()
        finally:
            stop.requested = True
    except Interrupted:
        return Ended(stopped=True)
    except KeyboardInterrupt:
        return Ended(BROKEN_OFF, stopped=True)
    except OSError as error:
        return Ended(of_the_system(error))
    except Exception as error:
        if not isinstance(error, OtpruneError | torch.OutOfMemoryError):
            traceback.print_exc()
        return Ended(in_one_line(error, SHORT_OF_MEMORY))
    return Ended()


def _stop_when_asked(words: "Connection[Word, Any]", stop: StopRequests) -> None:
    """Whatever comes asks this process to stop, and so does the end of who would send it."""
    with suppress(EOFError, OSError):
        words.recv()
    if not stop.requested:
        os.kill(os.getpid(), signal.SIGINT)
