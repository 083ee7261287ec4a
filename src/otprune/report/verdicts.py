"""A claim and its verdict, and the words and limits that verdicts are made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from otprune.report.chance import are_level, leans, reach

HIGH_SPARSITY = 50.0  # percent of the FLOPs
FEW = 0.05  # of the FLOPs that are left
NEW = "New: "
MARKS, WAITING = {True: "✓", False: "✗", None: "?"}, "○"
ROUNDING = 1.01  # the paper gives costs to two or three digits


class Verdict(StrEnum):
    """Whether a claim holds here.

    >>> Verdict.of([True, None, True]), Verdict.of([None]), Verdict.of([])
    (<Verdict.HOLDS: 'holds'>, <Verdict.UNDECIDED: 'cannot be told'>, <Verdict.OPEN: 'not yet measured'>)
    """

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "cannot be told"
    OPEN = "not yet measured"

    @classmethod
    def of(cls, found: Sequence[bool | None]) -> "Verdict":
        """It holds where it holds throughout, in all that can tell."""
        told = [one for one in found if one is not None]
        if told:
            return cls.HOLDS if all(told) else cls.FAILS
        return cls.UNDECIDED if found else cls.OPEN


@dataclass(frozen=True)
class Claim:
    """A claim in a few words and in full, where it holds, the numbers behind that, and the table or figure to look at.

    `judged` tells of each network, with its data, whether it holds there, or None where what was measured cannot tell;
    `asked` are all those that the paper has it of. `again` marks a claim that is another reading of the one before.

    >>> claim = Claim("pigs", "Pigs fly.", {"Berta": True, "Ida": None}, "", "flights", asked=("Berta", "Emil", "Ida"))
    >>> claim.verdict.value, claim.scope, claim.mark("Emil"), claim.mark("Ida")
    ('holds', '(told on 1 of 3)', '○', '?')
    """

    name: str
    text: str
    judged: Mapping[str, bool | None]
    evidence: str
    row: str
    asked: Sequence[str]
    again: bool = False

    @property
    def verdict(self) -> Verdict:
        """It holds where it holds throughout."""
        return Verdict.of(list(self.judged.values()))

    @property
    def scope(self) -> str:
        """On how many of them, where it is not on all."""
        told, asked = sum(holds is not None for holds in self.judged.values()), len(self.asked)
        return f"(told on {told} of {asked})" if 0 < told < asked else ""

    @property
    def is_new(self) -> bool:
        """Whether it is this project's own."""
        return self.name.startswith(NEW)

    def mark(self, subject: str) -> str:
        """Whether it holds there, as one character; nothing where the paper does not claim it."""
        if subject in self.judged:
            return MARKS[self.judged[subject]]
        return WAITING if subject in self.asked else ""


def averages(found: Mapping[str, Sequence[float]]) -> str:
    """The means of some numbers of points, each with its name, with how far they reach and with how many there are.

    >>> averages({"VGG-14": [1.0, 2.0], "ResNet-20": [0.5]})
    'VGG-14: +1.50 points on average of 2 networks (+1.00 to +2.00); ResNet-20: +0.50 points, 1 network'
    """
    return listed([f"{name}: {averaged(one)}" for name, one in found.items()])


def averaged(values: Sequence[float], what: str = "network", several: str = "") -> str:
    """One of them; `several` is the plural where that is another one.

    >>> averaged([-0.25], "seed")
    '-0.25 points, 1 seed'
    """
    if len(values) == 1:
        return f"{values[0]:+.2f} points, 1 {what}"
    ends = f"{min(values):+.2f} to {max(values):+.2f}"
    return f"{fmean(values):+.2f} points on average of {len(values)} {several or f'{what}s'} ({ends})"


def by_chance(values: Sequence[float], alone: float | None = None) -> str:
    """Words to add where the mean of some differences is no larger than chance may make it.

    >>> by_chance([-0.25]), by_chance([-0.1, 0.0, 0.1]), by_chance([1.5])
    (', which chance may explain (±0.70)', ', level to within 0.25', '')
    """
    if leans(values, alone) is not None:
        return ""
    margin = reach(values, alone)
    if are_level(values, alone):
        return f", level to within {abs(fmean(values)) + margin:.2f}"
    return f", which chance may explain (±{margin:.2f})"


def give_or_take(values: Sequence[float]) -> str:
    """Words to add on how far chance may have moved the mean of some differences.

    >>> give_or_take([0.1, 0.2, 0.3])
    ', give or take 0.25'
    """
    return f", give or take {reach(values):.2f}"


def listed(parts: Sequence[str]) -> str:
    """One after the other.

    >>> listed(["a", "b"])
    'a; b'
    """
    return "; ".join(parts)
