"""A number of cores for what is measured, and for nothing that it starts beside them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from otprune.errors import DeployError


@contextmanager
def pinned(threads: int) -> Iterator[list[int]]:
    """Keep this thread, and those that runtimes start from it, on so many cores, and torch on as many threads.

    Where the system cannot pin, the number of threads is all that is set. Yields the cores; none there.

    >>> with pinned(1) as cores:
    ...     torch.get_num_threads()
    1
    """
    usable = _usable_cores()
    if not 1 <= threads <= (len(usable) or threads):
        raise DeployError(f"threads is {threads}, and this process may use {len(usable)} cores: give 1 up to as many")
    before, cores = torch.get_num_threads(), usable[:threads]
    torch.set_num_threads(threads)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        torch.set_num_threads(before)
        if usable:
            os.sched_setaffinity(0, usable)


def _usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
