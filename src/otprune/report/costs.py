"""Accuracy against what was pruned: OT and Network Slimming, fine-tuned, from scratch, and without any training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from otprune.experiments import paper
from otprune.experiments.reproduce.needed import baseline
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS, slimming, sweep
from otprune.report.points import Point, points, subject, told_seeds
from otprune.report.style import AROUND, BASELINE, FAINT, NS, OT, PAPER, Sketch, figure, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

KINDS = {"flops": "FLOPs", "parameters": "parameters"}
DEEPEST = 15  # points below the best that are still shown
BROKEN: dict[str, Any] = {"color": NS, "marker": "x", "markersize": 6, "linestyle": "none"}
PAPERS_MARKER: dict[str, Any] = {"markersize": 10, "markeredgecolor": PAPER, "markeredgewidth": 0.8, "zorder": 5}


@dataclass(frozen=True)
class Pair:
    """What there is of a network on its data: OT's and NS's points, and the accuracy of the unpruned network."""

    data: str
    model: str
    ot: Sequence[Point]
    ns: Sequence[Point]
    baseline: float | None

    @property
    def name(self) -> str:
        """The network and its data as the paper writes them."""
        return subject(self.data, self.model)

    @property
    def intact(self) -> list[Point]:
        """NS's networks that are not broken: no layer of them was emptied."""
        return [point for point in self.ns if not point.emptied]

    @property
    def broken(self) -> list[Point]:
        """The others of NS's."""
        return [point for point in self.ns if point.emptied]


def pair(records: Records, data: str, model: str) -> Pair:
    """What is recorded of a network on its data.

    >>> from pathlib import Path
    >>> pair(Records(Path("nowhere")), "cifar10", "vgg14").ot
    []
    """
    unpruned = records.find(baseline(data, model))
    accuracy = None if unpruned is None else 100 * unpruned.results["accuracy_sparse"]
    return Pair(data, model, points(records, sweep(data, model)), points(records, slimming(data, model)), accuracy)


def asked(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The names of all.

    >>> asked([Pair("cifar10", "vgg14", [], [], None)])
    ('VGG-14 on CIFAR-10',)
    """
    return tuple(found.name for found in pairs)


def accuracy_vs_cost(records: Records) -> Iterator[Sketch]:
    """A figure for each network and its data, where something of it is recorded.

    >>> from pathlib import Path
    >>> list(accuracy_vs_cost(Records(Path("nowhere"))))
    []
    """
    stages = ("finetuned_1", "finetuned", "scratch")
    for found in _recorded(records, *stages):
        caption = _caption(found, "test accuracy against pruned FLOPs and parameters", stages)
        yield Sketch(f"accuracy-vs-cost-{found.data}-{found.model}", caption, partial(_against_cost, found))


def without_training(records: Records) -> Iterator[Sketch]:
    """The same without any training after pruning, as it is and recalibrated.

    >>> from pathlib import Path
    >>> list(without_training(Records(Path("nowhere"))))
    []
    """
    stages = ("pruned", "recalibrated")
    for found in _recorded(records, *stages):
        caption = _caption(found, "test accuracy of pruned networks without any training", stages)
        yield Sketch(f"without-training-{found.data}-{found.model}", caption, partial(_untrained, found))


def _caption(found: Pair, what: str, stages: Sequence[str]) -> str:
    return f"{found.name}: {what}. {told_seeds((*found.ot, *found.ns), stages)}".strip()


def _recorded(records: Records, *stages: str) -> Iterator[Pair]:
    """What there is to show of some stages."""
    for data, model in PAIRS:
        found = pair(records, data, model)
        if any(point.seeds(stage) for point in (*found.ot, *found.ns) for stage in stages):
            yield found


def _against_cost(found: Pair) -> "Figure":
    title = f"{found.name}: accuracy against what was pruned"
    ways = {"fine-tuned": _finetuned}
    if any(point.seeds("scratch") for point in (*found.ot, *found.ns)):
        ways["trained from scratch"] = _from_scratch
    drawn, axes = figure(title, 2, len(ways), (3.6 + 2.8 * len(ways), 7.2), sharey=True)
    for row, (kind, name) in enumerate(KINDS.items()):
        for ax, show in zip(axes[row], ways.values(), strict=True):
            show(ax, found, kind)
            ax.set_xlabel(f"pruned {name} (%)")
            ax.set_xlim(0, 100)
        axes[row, 0].set_ylabel("test accuracy (%)")
    for ax, way in zip(axes[0], ways, strict=True):
        ax.set_title(way)
    _fit([ax for line in axes for ax in line])
    legend_below(drawn, columns=2 * len(ways))
    return drawn


def _finetuned(ax: "Axes", found: Pair, kind: str) -> None:
    _baselines(ax, found)
    for method, series, color, marker in _methods(found):
        line(ax, series, kind, "finetuned", f"{method}, 40 epochs", color=color, marker=marker)
        line(ax, series, kind, "finetuned_1", f"{method}, 1 epoch", color=color, marker=marker, **AROUND)
    line(ax, found.broken, kind, "finetuned", "NS, broken, 40 epochs", **BROKEN)
    _papers_points(ax, found, kind)


def _from_scratch(ax: "Axes", found: Pair, kind: str) -> None:
    _baselines(ax, found)
    for method, series, color, marker in _methods(found):
        line(ax, series, kind, "scratch", f"{method}, from scratch", color=color, marker=marker)
    line(ax, found.broken, kind, "scratch", "NS, broken, from scratch", **BROKEN)


def _untrained(found: Pair) -> "Figure":
    title = f"{found.name}: accuracy without any training after pruning"
    drawn, axes = figure(title, 1, 1, (6.4, 4.9))
    ax = axes[0, 0]
    _baselines(ax, found)
    for method, series, color, marker in _methods(found):
        line(ax, series, "flops", "recalibrated", f"{method}, recalibrated", color=color, marker=marker)
        line(ax, series, "flops", "pruned", f"{method}, as pruned", color=color, marker=marker, **AROUND)
    line(ax, found.broken, "flops", "recalibrated", "NS, broken, recalibrated", **BROKEN)
    ax.set_xlabel("pruned FLOPs (%)")
    ax.set_ylabel("test accuracy (%)")
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    legend_below(drawn, columns=2)
    return drawn


def _methods(found: Pair) -> Iterator[tuple[str, Sequence[Point], str, str]]:
    """Both, their networks that are not broken, and how they are drawn."""
    yield "OT", found.ot, OT, "o"
    yield "NS", found.intact, NS, "s"


def line(ax: "Axes", series: Sequence[Point], kind: str, stage: str, label: str, **style: Any) -> None:
    """The points that have been through a stage, with bars over seeds where there are several."""
    there = [(point.cost(kind, stage), point.accuracy(stage)) for point in series if point.seeds(stage)]
    if not there:
        return
    x, y = ([spread.mean for spread in along] for along in zip(*there, strict=True))
    ax.plot(x, y, label=label, **style)
    xerr, yerr = ([spread.std for spread in along] for along in zip(*there, strict=True))
    ax.errorbar(x, y, yerr, xerr, fmt="none", ecolor=style["color"], elinewidth=1)


def _baselines(ax: "Axes", found: Pair) -> None:
    theirs = paper.baselines()[found.data, found.model].accuracy
    ax.axhline(theirs, color=FAINT, linestyle="--", linewidth=1, label=f"unpruned, paper ({theirs:g} %)")
    if found.baseline is not None:
        label = f"unpruned, here ({found.baseline:.2f} %)"
        ax.axhline(found.baseline, color=BASELINE, linestyle="--", linewidth=1, label=label)


def _papers_points(ax: "Axes", found: Pair, kind: str) -> None:
    """The fine-tuned networks that the paper gives in numbers."""
    whole = getattr(paper.baselines()[found.data, found.model], kind)
    table, headline = paper.table("statistics"), paper.table("points")["headline"]
    if found.model == table["model"] and found.data in table:
        for rule, marker, color in (("ot", "*", OT), ("ns", "X", NS)):
            column = paper.statistics(found.data, rule)
            cost, label = getattr(column, kind), f"{rule.upper()}, paper ({table['runs']} seeds)"
            x, xerr = 100 * (1 - cost.mean / whole), 100 * cost.std / whole
            style: dict[str, Any] = {"fmt": marker, "color": color, "label": label, **PAPERS_MARKER}
            ax.errorbar(x, column.accuracy.mean, column.accuracy.std, xerr, elinewidth=1, ecolor=PAPER, **style)
    if (found.model, found.data) == (headline["model"], headline["data"]):
        place = (100 * (1 - headline[kind] / whole), headline["accuracy"])
        ax.plot(*place, "*", color=OT, label="OT, paper", **PAPERS_MARKER)


def _fit(axes: Sequence["Axes"]) -> None:
    """Leave out networks that are broken, so that the others can be told apart; an arrow says that they are below."""
    points = [(ax, line, *place) for ax in axes for line in ax.get_lines() for place in _places(line)]
    lasting = [y for _, line, _, y in points if line.get_linestyle() != AROUND["linestyle"]]
    best, worst = max(lasting), min(lasting)
    lowest = max(worst, best - DEEPEST) - 0.5
    axes[0].set_ylim(lowest, best + 0.5)
    for ax, line, x, y in points:
        if y < lowest:
            look: dict[str, Any] = {"color": line.get_color(), "fillstyle": line.get_fillstyle()}
            ax.plot(x, 0.025, "v", transform=ax.get_xaxis_transform(), label="below the picture", **look)


def _places(line: "Line2D") -> list[tuple[float, float]]:
    """Where a line has points; the caps of bars over one seed have none."""
    x, y = (np.asarray(values, float) for values in (line.get_xdata(), line.get_ydata()))
    there = np.isfinite(x) & np.isfinite(y)
    return list(zip(x[there].tolist(), y[there].tolist(), strict=True))
