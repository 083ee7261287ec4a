"""What one of several processes that train together wants, heard by all of them at the same step."""

import time

from otprune.training import distributed

EVERY_SECONDS, EVERY_STEPS = 0.5, 10  # whichever is over first


class Asking:
    """Asks all processes of a group after some steps only, since they wait for each other's answers.

    After how many is agreed on with the answer, so that all ask at the same step, and slow steps are no long wait. A
    process alone has what it wants at once.

    >>> Asking().most(2, otherwise=0)
    2
    """

    def __init__(self) -> None:
        self._left, self._steps, self._since = 1, 1, time.monotonic()

    def most(self, wanted: int, otherwise: int) -> int:
        """The largest number that a process wants, or something else where it is not time to ask; for every step."""
        if distributed.current() is None:
            return wanted
        self._left -= 1
        if self._left:
            return otherwise
        found = distributed.most(wanted)
        self._left = self._steps = distributed.most(self._affordable())
        self._since = time.monotonic()
        return found

    def _affordable(self) -> int:
        took = (time.monotonic() - self._since) / self._steps
        return min(max(int(EVERY_SECONDS / max(took, 1e-9)), 1), EVERY_STEPS)
