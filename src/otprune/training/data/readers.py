"""The processes that read images, and what becomes of a run when one of them is killed."""

import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from otprune.errors import DataError

GONE = re.compile(r"DataLoader worker \(pid\(?s?\)? [\d, ]+\)|Pin memory thread exited")


def batches_of(loader: "DataLoader[Any]") -> Iterator[Any]:
    """What a loader brings; where one of its processes is killed, an error of the run that needs the batches.

    >>> import torch
    >>> [batch.tolist() for batch in batches_of(DataLoader(torch.arange(3), batch_size=2))]
    [[0, 1], [2]]
    """
    try:
        yield from _begun(loader)
    except (RuntimeError, EOFError, ConnectionError) as error:
        if isinstance(error, RuntimeError) and GONE.search(str(error)) is None:
            raise
        raise DataError(
            f"a process that read images was killed, as happens where memory or /dev/shm runs out ({error}): "
            f"see that there is more, then give the same command again to go on from the last checkpoint."
        ) from error


def _begun(loader: "DataLoader[Any]") -> Iterator[Any]:
    """With its processes, but without torch's handler of the signal that one has ended.

    It would raise an error in the midst of whatever is done then, be it a step of another run. Without, the loader
    finds out when a batch is waited for.
    """
    if not hasattr(signal, "SIGCHLD") or threading.current_thread() is not threading.main_thread():
        return iter(loader)
    before = signal.getsignal(signal.SIGCHLD)
    begun = iter(loader)
    if before is not None and signal.getsignal(signal.SIGCHLD) is not before:
        signal.signal(signal.SIGCHLD, before)
    return begun
