"""One folder for all processes that train together, also where they are on several machines."""

import socket
import time
from functools import partial
from pathlib import Path

from otprune.errors import TrainingError
from otprune.files import neighbour
from otprune.training import distributed

SEEN_WITHIN_SECONDS = 10.0  # on a disk of the network, which other machines may look at only now and then
LOOK_EVERY_SECONDS = 0.1


def require_same_folder(folder: Path, within: float = SEEN_WITHIN_SECONDS) -> None:
    """Refuse a folder that another process than the leader, which must hold it, does not see; all must ask.

    The leader leaves a file there for a moment. It is named like a file that is being written, so that what a kill
    leaves of it goes when the folder is held again.

    >>> require_same_folder(Path("nowhere"))  # a process alone
    """
    if distributed.current() is None:
        return
    token = distributed.led(partial(_left_in, folder))
    try:
        seen = token is None or distributed.leads() or _appears(folder / token, within)
        blind = distributed.gathered({} if seen else {f"{distributed.share().number}": socket.gethostname()})
    finally:
        if token is not None and distributed.leads():
            (folder / token).unlink(missing_ok=True)
    if blind:
        others = ", ".join(f"number {number} on {host}" for number, host in sorted(blind.items()))
        raise TrainingError(
            f"{folder} is not the same folder for the processes that train together: what the first writes there is "
            f"not seen by {others}. Give all of them the same command, and a folder that all of them see."
        )


def _left_in(folder: Path) -> str | None:
    """The name of a new file; None where nothing can be written, as where all is done and only looked at."""
    token = neighbour(folder / "seen")
    try:
        token.touch(exist_ok=False)
    except OSError:
        return None
    return token.name


def _appears(path: Path, within: float) -> bool:
    until = time.monotonic() + within
    while not _is_listed(path):
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_EVERY_SECONDS)
    return True


def _is_listed(path: Path) -> bool:
    """By listing the folder, which asks the server of a disk of the network, where a look at a name may not."""
    try:
        return any(found.name == path.name for found in path.parent.iterdir())
    except OSError:
        return False
