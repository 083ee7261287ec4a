"""The folder that a run has on a node for as long as a task works there, and what killed tasks left of theirs.

Each has a file that is locked by the process that works there; the system lets go of the lock when it ends. By `flock`,
not `lockf`: who only looks whether a file is locked would let go of the latter.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

PREFIX, IN_USE = "otprune-", ".in-use"


@contextmanager
def place_for_a_copy() -> Iterator[Path]:
    """A fresh folder, which is gone afterwards; those of processes that were killed on this machine go before.

    >>> with place_for_a_copy() as place:
    ...     place.is_dir()
    True
    >>> place.exists()
    False
    """
    remove_abandoned(Path(gettempdir()))
    with TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        file = _locked(Path(folder, IN_USE), make=True)
        if file is None:  # the system has no locks, and without this file nobody takes the folder for abandoned
            Path(folder, IN_USE).unlink(missing_ok=True)
        try:
            yield Path(folder)
        finally:
            if file is not None:
                os.close(file)


def remove_abandoned(place: Path) -> None:
    """Remove the folders in which nobody works any more.

    One that has nothing in it may be about to be locked, and stays: there is nothing before it is.

    >>> remove_abandoned(Path("nowhere"))
    """
    for folder in place.glob(f"{PREFIX}*"):
        file = _locked(folder / IN_USE)
        if file is None:
            continue
        with suppress(OSError):  # somebody else's, who may remove it
            if any(inside.name != IN_USE for inside in folder.iterdir()):
                shutil.rmtree(folder)
        os.close(file)


def _locked(path: Path, make: bool = False) -> int | None:
    """The file, locked; None where it cannot be. Who makes it waits for those that only look, who do not."""
    try:
        import fcntl

        file = os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if make else fcntl.LOCK_NB))
    except OSError:
        os.close(file)
        return None
    return file
