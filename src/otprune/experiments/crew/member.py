"""What goes on in a process of a crew: one task, stopped when who began it asks so or is no more."""

import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from otprune.errors import OtpruneError
from otprune.experiments.news import News
from otprune.training.failures import of_the_system


@dataclass(frozen=True)
class Freed:
    """These tasks, which waited for this one, can begin."""

    tasks: frozenset[str]


@dataclass(frozen=True)
class Ended:
    """The task is over: done, or with an error, or stopped as it was asked to be."""

    error: str | None = None
    stopped: bool = False


Word = News | Freed | Ended
Tell = Callable[[Word], None]


def perform(do: Callable[[Tell], object], words: "Connection[Word, Any]") -> None:
    """Do a task, which is given a way to tell of it; the last word is how it ended.

    >>> from multiprocessing import Pipe
    >>> here, there = Pipe()
    >>> perform(lambda tell: tell(Freed(frozenset({"b"}))), there)
    >>> here.recv(), here.recv()
    (Freed(tasks=frozenset({'b'})), Ended(error=None, stopped=False))
    """

    def tell(word: Word) -> None:
        with suppress(OSError):  # nobody listens any more, and `_stop_when_asked` is about to say so
            words.send(word)

    over = threading.Event()
    threading.Thread(target=_stop_when_asked, args=(words, over), daemon=True).start()
    ended = _ended(do, tell)
    over.set()
    tell(ended)


def begin(do: Callable[[Tell], object], words: "Connection[Word, Any]") -> None:
    """`perform` in a fresh process, which a Ctrl-C in the terminal is to reach by way of its crew alone.

    tests/test_crew.py shows it at work.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what was begun in the background
    perform(do, words)


def _ended(do: Callable[[Tell], object], tell: Tell) -> Ended:
    try:
        do(tell)
    except KeyboardInterrupt:
        return Ended(stopped=True)
    except OtpruneError as error:
        return Ended(str(error))
    except OSError as error:
        return Ended(of_the_system(error))
    except Exception as error:
        traceback.print_exc()
        return Ended(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return Ended()


def _stop_when_asked(words: "Connection[Word, Any]", over: threading.Event) -> None:
    """Whatever comes asks this process to stop, and so does the end of who would send it."""
    with suppress(EOFError, OSError):
        words.recv()
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGINT)
