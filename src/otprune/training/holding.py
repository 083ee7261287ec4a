"""One process at a time in a folder: a lock that the system lets go of when the process ends, however it ends.

A process may hold a folder several times over. Who only reads there needs no lock.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from otprune.errors import TrainingError
from otprune.files import remove_leftovers
from otprune.training.checkpoint import remove_begun

LOCK = ".lock"
LOOK_EVERY_SECONDS = 0.1
HELD = (errno.EACCES, errno.EAGAIN)  # what the system says of a lock that another process has


@dataclass
class _Held:
    """How often a folder is held here, and the file that is locked for it, where files can be."""

    file: int | None
    holders: int = 0


_all_held: dict[Path, _Held] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_all_held.clear)  # a child has not got the locks of its parent


def hold(folder: Path, patience: float = 0.0) -> Callable[[], None]:
    """Keep other processes out of a folder, which is made where there is none; what is returned lets them in again.

    What a process that is no more was writing there when it ended is removed, and checkpoints that it had begun in the
    folders of trainings inside. `patience` is how many seconds another process there is waited for.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     let_go = hold(Path(folder, "run"))
    ...     is_held(Path(folder, "run")), let_go(), is_held(Path(folder, "run"))
    (True, None, False)
    """
    place = folder.resolve()
    if place not in _all_held:
        if folder.is_file():
            raise TrainingError(f"{folder} is a file: name a folder")
        folder.mkdir(parents=True, exist_ok=True)
        _all_held[place] = _Held(_locked(folder, patience))
        if _all_held[place].file is not None:
            remove_leftovers(folder)
            for inside in folder.iterdir():
                if not (inside / LOCK).exists():  # else it is somebody else's to hold
                    remove_begun(inside)
    held = _all_held[place]
    held.holders += 1
    return partial(_let_go, place, held)


@contextmanager
def holding(folders: Iterable[Path], patience: float = 0.0) -> Iterator[None]:
    """Hold some folders for a while.

    >>> with holding([]):
    ...     pass
    """
    with ExitStack() as stack:
        for folder in folders:
            stack.callback(hold(folder, patience))
        yield


def is_held(folder: Path) -> bool:
    """Whether this process holds a folder.

    >>> is_held(Path("nowhere"))
    False
    """
    return folder.resolve() in _all_held


def _let_go(place: Path, held: _Held) -> None:
    held.holders -= 1
    if held.holders == 0 and _all_held.get(place) is held:
        del _all_held[place]
        if held.file is not None:
            os.close(held.file)


def _locked(folder: Path, patience: float) -> int | None:
    """The locked file, or None where nothing can be written or the system has no locks."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if os.path.lexists(folder / LOCK) and error.errno != errno.EROFS and os.access(folder, os.W_OK):
            raise TrainingError(
                f"{folder / LOCK}: cannot be opened ({error.strerror}), so nobody can tell whether another process is "
                f"at work in this folder. It may be another user's: use another folder, or delete it when none is."
            ) from error
        return None
    try:
        _lock(file, time.monotonic() + patience)
    except (ImportError, OSError) as error:
        os.close(file)
        if isinstance(error, OSError) and error.errno in HELD:
            raise TrainingError(
                f"{folder}: another process is at work in this folder. Wait until it ends, or use another folder."
            ) from error
        return None
    return file


def _lock(file: int, until: float) -> None:
    """By `lockf`, not `flock`: processes that this one forked, to load images say, would keep the latter after a kill.

    Raises ImportError where the system has no such locks.
    """
    import fcntl

    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in HELD or time.monotonic() >= until:
                raise
        time.sleep(LOOK_EVERY_SECONDS)
