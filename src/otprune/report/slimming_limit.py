"""How far Network Slimming can go before it empties a layer, at every λ, and where OT stops."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from otprune.experiments import paper
from otprune.experiments.reproduce.needed import lam_text
from otprune.experiments.reproduce.records import Records
from otprune.report.columns import MODEL
from otprune.report.markdown import NONE, markdown_table, spread_text
from otprune.report.one_training import Trained, trainings
from otprune.report.points import DATA_NAMES, spread, subject
from otprune.report.style import NS, OT, PAPER, Sketch, figure, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADER = (
    *("VGG-14 on", "λ", "trainings", "FLOPs that OT takes (%)", "FLOPs that NS can take (%)"),
    *("the paper's limit of NS (%)", "channels that both keep (%)"),
)
NOTE = (
    "NS can take so many FLOPs until a layer loses its last channel. Channels that both keep are a share of those that "
    "OT keeps, with as many kept by NS. All of it follows from recorded scaling factors; nothing was trained for it."
)


def slimming_limit(records: Records) -> Iterator[Sketch]:
    """A figure of both data sets, once the γ of a training are recorded.

    >>> from pathlib import Path
    >>> list(slimming_limit(Records(Path("nowhere"))))
    []
    """
    found = {data: trainings(records, data) for data in DATA_NAMES}
    if any(found.values()):
        caption = "VGG-14: the FLOPs that OT takes, and those that NS can take before it empties a layer, by λ."
        yield Sketch("one-training", f"{caption} A point is a training.", partial(_drawn, found))


def limits(records: Records) -> Iterator[str]:
    """The same in numbers, and how many channels the two keep in common.

    >>> from pathlib import Path
    >>> list(limits(Records(Path("nowhere"))))
    []
    """
    lines = [line for data in DATA_NAMES for line in _lines(data, trainings(records, data))]
    if lines:
        yield markdown_table(HEADER, lines)
        yield NOTE


def _lines(data: str, found: Sequence[Trained]) -> Iterator[list[str]]:
    for lam, group in _by_lam(found).items():
        measured = [[getattr(one, name) for one in group] for name in ("taken", "limit", "shared")]
        taken, limit, shared = (spread_text(spread(values), 1) for values in measured)
        theirs = f"{papers_limit(data):g}" if lam == paper.slimming_lam(MODEL) else NONE
        yield [DATA_NAMES[data], lam_text(lam), str(len(group)), taken, limit, theirs, shared]


def _by_lam(found: Sequence[Trained]) -> Mapping[float, list[Trained]]:
    groups: dict[float, list[Trained]] = {}
    for one in found:
        groups.setdefault(one.lam, []).append(one)
    return groups


def papers_limit(data: str) -> float:
    """The most FLOPs that NS can take, in percent; the paper does not say at which λ, but with which NS trains.

    >>> papers_limit("cifar10")
    53.0
    """
    limit: float = paper.table("points")["slimming_limit"][data]
    return 100 * limit


def _drawn(found: Mapping[str, Sequence[Trained]]) -> "Figure":
    title = "VGG-14: how far NS can go before it empties a layer, and where OT stops"
    drawn, axes = figure(title, 1, len(found), (9.2, 4.2), sharey=True)
    for ax, (data, those) in zip(axes[0], found.items(), strict=True):
        _limits_by_lam(ax, those)
        place = (paper.slimming_lam(MODEL), papers_limit(data))
        ax.plot(*place, "*", color=PAPER, markersize=10, label="NS's limit, paper")
        ax.set_title(subject(data, MODEL))
        ax.set_xscale("log")
        ax.set_xlabel("λ")
    axes[0, 0].set_ylabel("pruned FLOPs (%)")
    axes[0, 0].set_ylim(0, 100)
    legend_below(drawn, columns=3)
    return drawn


def _limits_by_lam(ax: "Axes", those: Sequence[Trained]) -> None:
    """Each training, and a line through the means."""
    looks: dict[str, dict[str, Any]] = {
        "limit": {"color": NS, "marker": "s", "fillstyle": "none", "label": "NS's limit, from the scaling factors"},
        "taken": {"color": OT, "marker": "o", "markersize": 3.5, "label": "OT"},
    }
    for name, look in looks.items():
        ax.plot([one.lam for one in those], [getattr(one, name) for one in those], linestyle="none", **look)
        means = {lam: spread(getattr(one, name) for one in group).mean for lam, group in _by_lam(those).items()}
        ax.plot(list(means), list(means.values()), color=look["color"], linewidth=1)
