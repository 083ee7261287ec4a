"""A claim and its verdict, and the words and limits that verdicts are made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

HIGH_SPARSITY = 50.0  # percent of the FLOPs
CLOSE = 0.5  # points of accuracy
FEW = 0.05  # of the FLOPs that are left
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
    """A claim, the verdict, the numbers behind it, and the table or figure to look at."""

    text: str
    verdict: Verdict
    evidence: str
    row: str


def averages(found: Mapping[str, Sequence[float]]) -> str:
    """The means of some numbers of points, each with its name and with how many there are.

    >>> averages({"VGG-14": [1.0, 2.0]})
    'points on average (of so many networks): VGG-14 +1.50 (2)'
    """
    parts = [f"{name} {fmean(one):+.2f} ({len(one)})" for name, one in found.items()]
    return f"points on average (of so many networks): {listed(parts)}" if parts else ""


def on_average_above(found: Mapping[str, Sequence[float]]) -> Verdict:
    """It holds where the mean is above zero throughout.

    >>> on_average_above({"VGG-14": [1.0, -2.0]})
    <Verdict.FAILS: 'does not hold'>
    """
    return Verdict.of([fmean(one) > 0 for one in found.values()])


def listed(parts: Sequence[str]) -> str:
    """One after the other.

    >>> listed(["a", "b"])
    'a; b'
    """
    return "; ".join(parts)
