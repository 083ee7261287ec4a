"""All claims at a glance: a figure of where each holds, by network and data set."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS
from otprune.report.claims import claims
from otprune.report.points import subject
from otprune.report.style import BASELINE, FAINT, NS, Sketch, figure
from otprune.report.verdicts import MARKS, WAITING, Claim, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "claims"
SUBJECTS = tuple(subject(data, model) for data, model in (*PAIRS, ("cifar10", "resnet20")))
COLOURS = {MARKS[True]: BASELINE, MARKS[False]: NS, MARKS[None]: FAINT, WAITING: FAINT}
LEGEND = "✓ holds     ✗ does not     ? cannot be told     · not run yet     blank: the paper does not claim it"
CAPTION = (
    "Where each claim holds (✓), where it does not (✗), where what was measured cannot tell (?), and where it waits "
    "for its runs (·); elsewhere the paper does not claim it."
)


def scoreboard(records: Records) -> Iterator[Sketch]:
    """The figure, once a claim is judged.

    >>> from pathlib import Path
    >>> list(scoreboard(Records(Path("nowhere"))))
    []
    """
    found = claims(records)
    if any(claim.verdict is not Verdict.OPEN for claim in found):
        yield Sketch(NAME, CAPTION, partial(_board, found))


def _board(found: Sequence[Claim]) -> "Figure":
    drawn, axes = figure("Which claims hold here", 1, 1, (8.6, 0.27 * len(found) + 1.4))
    ax = axes[0, 0]
    ax.set_axis_off()
    ax.set_xlim(-3.6, len(SUBJECTS) - 0.5)
    ax.set_ylim(len(found) + 0.5, -1.7)
    ax.axhline(len(found) - 0.5, color="#e4e4e4", linewidth=0.7)
    ax.text(-3.6, len(found), LEGEND, va="center", color=FAINT)
    for column, name in enumerate(SUBJECTS):
        ax.text(column, -0.7, name.replace(" on ", "\n"), ha="center", va="bottom", fontsize=8)
    for line, claim in enumerate(found):
        ax.axhline(line - 0.5, color="#e4e4e4", linewidth=0.7)
        ax.text(-3.6, line, claim.name, va="center")
        marks = {column: mark for column, name in enumerate(SUBJECTS) if (mark := claim.mark(name))}
        for column, mark in marks.items():
            ax.text(column, line, mark, ha="center", va="center", color=COLOURS[mark], fontsize=13, weight="bold")
        if not marks:  # it is of other networks
            ax.text(-0.3, line, claim.evidence, va="center", color=FAINT)
    return drawn
