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
LEGEND = "✓ holds     ✗ does not     ? cannot be told     ○ not run yet     blank: the paper does not claim it"
GLOSSARY = (
    "OT: Optimal Thresholding. NS: Network Slimming, at a λ of its own unless said. ISTA: the method of Ye et al. "
    "2018.\nInside blocks: penalized and pruned there alone. New: not the paper's claim. What is not over seeds rests "
    "on one or a few.\nWhat was measured of each claim, and its limits, is on the page."
)
LABELS = -5.3  # where they begin, in columns
CAPTION = (
    "Where each claim holds (✓), where it does not (✗), where what was measured cannot tell (?), and where it waits "
    "for its runs (○); elsewhere the paper does not claim it."
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
    drawn, axes = figure("Which claims hold here", 1, 1, (10, 0.27 * len(found) + 1.9))
    ax = axes[0, 0]
    ax.set_axis_off()
    ax.set_xlim(LABELS, len(SUBJECTS) - 0.5)
    ax.set_ylim(len(found) + 2.2, -1.7)
    ax.axhline(len(found) - 0.5, color="#e4e4e4", linewidth=0.7)
    ax.text(LABELS, len(found), LEGEND, va="center", color=FAINT)
    ax.text(LABELS, len(found) + 0.7, GLOSSARY, va="top", color=FAINT, fontsize=8.5)
    for column, name in enumerate(SUBJECTS):
        ax.text(column, -0.7, name.replace(" on ", "\n"), ha="center", va="bottom", fontsize=8)
    for line, claim in enumerate(found):
        ax.axhline(line - 0.5, color="#e4e4e4", linewidth=0.7)
        ax.text(LABELS, line, claim.name, va="center")
        marks = {column: mark for column, name in enumerate(SUBJECTS) if (mark := claim.mark(name))}
        for column, mark in marks.items():
            size = 8 if mark == WAITING else 13
            ax.text(column, line, mark, ha="center", va="center", color=COLOURS[mark], fontsize=size, weight="bold")
        if not marks:  # it is of other networks
            ax.text(-0.3, line, claim.evidence, va="center", color=FAINT)
    return drawn
