"""What a run in another process, be it here or on some node, has to say for the screen of who asked for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from otprune.experiments.standing import Standing


@dataclass(frozen=True)
class Began:
    """A run is taken up on a node, for the first time or again; `reached` is the file that it goes on from.

    >>> str(Began("a", "node-1", attempt=1)), str(Began("a", "node-2", attempt=2, reached="sparse.safetensors"))
    ('a: started on node-1', 'a: moved to node-2, goes on from sparse.safetensors')
    """

    run: str
    where: str
    attempt: int
    reached: str = ""

    def __str__(self) -> str:
        how = "started on" if self.attempt == 1 else "moved to"
        again = "starts over" if self.attempt > 1 else ""
        since = f"goes on from {self.reached}" if self.reached else again
        return f"{self.run}: {how} {self.where}" + (f", {since}" if since else "")


@dataclass(frozen=True)
class Stood:
    """A training of a run stands so."""

    run: str
    standing: Standing


@dataclass(frozen=True)
class Said:
    """What came of a stage, in words."""

    run: str
    stage: str
    lines: Sequence[str]


News = Began | Stood | Said


class Listener(Protocol):
    """Whoever wants to know how runs get on, such as a screen."""

    def hear(self, news: News) -> None:
        """A run has something to say."""
        ...

    def ended(self, run: str, error: str | None) -> None:
        """A run is over, with an error or without."""
        ...


class Nobody:
    """Wants to know nothing.

    >>> Nobody().ended("a", None)
    """

    def hear(self, news: News) -> None:
        """Does not listen."""

    def ended(self, run: str, error: str | None) -> None:
        """Does not listen."""
