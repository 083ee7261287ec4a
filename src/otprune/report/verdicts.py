"""A claim and its verdict, and the words and limits that verdicts are made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

HIGH_SPARSITY = 50.0  # percent of the FLOPs
CLOSE = 0.5  # points of accuracy
FEW = 0.05  # of the FLOPs that are left
NEW = "New: "
ENOUGH = 3  # seeds
MARKS, WAITING = {True: "✓", False: "✗", None: "?"}, "·"
ROUNDING = 1.01  # the paper gives costs to two or three digits


class Verdict(StrEnum):
    """Whether a claim holds here.

    >>> Verdict.of([True, True]), Verdict.of([])
    (<Verdict.HOLDS: 'holds'>, <Verdict.OPEN: 'not yet measured'>)
    """

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not yet measured"

    @classmethod
    def of(cls, found: Sequence[bool]) -> "Verdict":
        """It holds where it holds throughout, in all that has been measured."""
        return cls.OPEN if not found else cls.HOLDS if all(found) else cls.FAILS


@dataclass(frozen=True)
class Claim:
    """A claim in a few words and in full, where it holds, the numbers behind that, and the table or figure to look at.

    `judged` tells of each network, with its data, whether it holds there, or None where what was measured cannot tell;
    `asked` are all those that the paper has it of.

    >>> claim = Claim("pigs", "Pigs fly.", {"Berta": True, "Ida": None}, "", "flights", asked=("Berta", "Emil", "Ida"))
    >>> claim.verdict.value, claim.scope, claim.mark("Emil"), claim.mark("Ida")
    ('holds', '(measured on 1 of 3)', '·', '?')
    """

    name: str
    text: str
    judged: Mapping[str, bool | None]
    evidence: str
    row: str
    asked: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        """It holds where it holds throughout."""
        return Verdict.of(self._told)

    @property
    def scope(self) -> str:
        """On how many of them, where it is not on all."""
        told, asked = len(self._told), len(self.asked)
        return f"(measured on {told} of {asked})" if 0 < told < asked else ""

    @property
    def is_new(self) -> bool:
        """Whether it is this project's own."""
        return self.name.startswith(NEW)

    def mark(self, subject: str) -> str:
        """Whether it holds there, as one character; nothing where the paper does not claim it."""
        if subject in self.judged:
            return MARKS[self.judged[subject]]
        return WAITING if subject in self.asked else ""

    @property
    def _told(self) -> list[bool]:
        return [holds for holds in self.judged.values() if holds is not None]


def averages(found: Mapping[str, Sequence[float]]) -> str:
    """The means of some numbers of points, each with its name, with how far they reach and with how many there are.

    >>> averages({"VGG-14": [1.0, 2.0], "ResNet-20": [0.5]})
    'VGG-14: +1.50 points on average of 2 networks (+1.00 to +2.00); ResNet-20: +0.50 points, 1 network'
    """
    return listed([f"{name}: {averaged(one)}" for name, one in found.items()])


def averaged(values: Sequence[float], what: str = "network") -> str:
    """One of them.

    >>> averaged([-0.25], "seed")
    '-0.25 points, 1 seed'
    """
    if len(values) == 1:
        return f"{values[0]:+.2f} points, 1 {what}"
    reach = f"{min(values):+.2f} to {max(values):+.2f}"
    return f"{fmean(values):+.2f} points on average of {len(values)} {what}s ({reach})"


def on_average_above(found: Mapping[str, Sequence[float]]) -> dict[str, bool]:
    """Where the mean is above zero.

    >>> on_average_above({"VGG-14": [1.0, -2.0]})
    {'VGG-14': False}
    """
    return {name: fmean(one) > 0 for name, one in found.items()}


def listed(parts: Sequence[str]) -> str:
    """One after the other.

    >>> listed(["a", "b"])
    'a; b'
    """
    return "; ".join(parts)
