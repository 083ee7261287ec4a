"""The records that can be read: what needs no other can be listed and drawn, and the others are named."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Record, Records


class Undamaged(Records):
    """The same, with those that are refused as if they were not there; `refused` says by place what is wrong with them.

    >>> records = Undamaged(Path("nowhere"))
    >>> records.all, records.refused
    ({}, {})
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.refused: dict[str, str] = {}

    def at(self, place: str) -> Record | None:
        """The record in a place, if there is one that can be read."""
        return self._unless_refused(place, partial(super().at, place))

    def find(self, needed: Needed) -> Record | None:
        """The record that is needed, if it is there and of that experiment."""
        return self._unless_refused(needed.place, partial(super().find, needed))

    def _read(self, path: Path) -> Record | None:
        return self._unless_refused(self.place_of(path), partial(super()._read, path))

    def _unless_refused(self, place: str, read: Callable[[], Record | None]) -> Record | None:
        try:
            return read()
        except TrainingError as error:
            self.refused.setdefault(place, str(error))  # what was found first is the cause
            return None
