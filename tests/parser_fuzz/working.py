"""A process that tries inputs one after the other. It may die of one: then it is told which, and another goes on."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch

from tests.parser_fuzz.targets import TARGETS
from tests.parser_fuzz.trying import drawn, limit_memory, outcome, problem

DIED = "the process that read it died"


class Tried(NamedTuple):
    """What became of an input, with its bytes where it went wrong."""

    number: int
    outcome: str | None
    problem: str | None
    content: bytes
    seconds: float


def tried(name: str, seed: int, numbers: range) -> Iterator[Tried]:
    """Try inputs of a parser in other processes, in order."""
    following = numbers.start
    while following < numbers.stop:
        for one in _in_a_process(name, seed, range(following, numbers.stop)):
            following = one.number + 1
            yield one


def content_of(name: str, seed: int, number: int) -> tuple[bytes, int]:
    """An input of a parser, drawn again, and the number of its honest file."""
    return drawn(Random(f"{seed} {name} {number}"), TARGETS[name][0]())


def _in_a_process(name: str, seed: int, numbers: range) -> Iterator[Tried]:
    """All of them, or those up to the one that the process dies of."""
    # Not forked: a process that has run torch holds threads and locks that a fork would break.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, seed, numbers, sender), daemon=True)
    process.start()
    sender.close()
    following = numbers.start
    while following < numbers.stop:
        try:
            found: Tried = receiver.recv()
        except EOFError:
            break
        following = found.number + 1
        yield found
    process.join()
    if following < numbers.stop:
        content, _ = content_of(name, seed, following)
        yield Tried(following, None, f"{DIED}, with exit status {process.exitcode}", content, 0.0)


def _work(name: str, seed: int, numbers: range, sender: Connection) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    target = TARGETS[name][0]()
    with tempfile.TemporaryDirectory() as folder:
        for number, sample in enumerate(target.samples):  # and whatever is imported late is imported now
            assert outcome(target, sample, number, Path(folder)) == "accepted", f"{name}: an honest file is refused"
        limit_memory()
        for number in numbers:
            content, source = drawn(Random(f"{seed} {name} {number}"), target)
            begin = time.perf_counter()
            found, wrong = problem(target, content, source, Path(folder))
            kept = b"" if wrong is None else content
            sender.send(Tried(number, found, wrong, kept, time.perf_counter() - begin))
