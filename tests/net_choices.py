"""Where the decisions of a random network come from: a random number generator, or hypothesis, which shrinks them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Choices(Protocol):
    """A source of decisions. The lowest integer, the first option and False are the simplest ones."""

    def integer(self, lowest: int, highest: int) -> int:
        """An integer, both ends included."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""

    def flag(self) -> bool:
        """Yes or no, as likely as not."""

    def together(self, decide: Callable[[Choices], T]) -> T:
        """Decisions that belong together, so that shrinking can take them out as one."""


class RandomChoices:
    """Decisions by a random number generator.

    >>> RandomChoices(random.Random(0)).integer(5, 5)
    5
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def integer(self, lowest: int, highest: int) -> int:
        return self._rng.randint(lowest, highest)

    def pick(self, options: Sequence[T]) -> T:
        return self._rng.choice(options)

    def flag(self) -> bool:
        return self._rng.random() < 0.5

    def together(self, decide: Callable[[Choices], T]) -> T:
        return decide(self)


class Draw(Protocol):
    """What both `st.composite` and `st.data` hand out."""

    def __call__(self, strategy: st.SearchStrategy[T], label: object = None) -> T: ...


class DrawnChoices:
    """Decisions that hypothesis draws, replays and shrinks."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def integer(self, lowest: int, highest: int) -> int:
        return self._draw(st.integers(lowest, highest))

    def pick(self, options: Sequence[T]) -> T:
        return options[self._draw(st.integers(0, len(options) - 1))]

    def flag(self) -> bool:
        return self._draw(st.booleans())

    def together(self, decide: Callable[[Choices], T]) -> T:
        return self._draw(_decided(decide))


@st.composite
def _decided(draw: st.DrawFn, decide: Callable[[Choices], T]) -> T:
    return decide(DrawnChoices(draw))
