"""ResNet-20 against Ye et al., pruning in rounds, and the channels of every layer over the seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from otprune.experiments import paper
from otprune.experiments.iterate import Restart
from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import baseline, lam_text
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import ista, row, sweep, sweeps_of_resnet20
from otprune.report.columns import ELSEWHERE, Column, column, slimming_as_elsewhere
from otprune.report.costs import line
from otprune.report.points import DATA_NAMES, Point, counted, finetuned, points
from otprune.report.style import AROUND, FAINT, INSIDE, ISTA, NS, NS_ELSEWHERE, OT, PAPER, Sketch, figure, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUP_WIDTH = 0.8  # of the bars of a layer
RULES = {"ot": ("OT", OT, "o"), "ns": ("NS", NS, "s")}


def resnet20(records: Records) -> Iterator[Sketch]:
    """Accuracy lost against parameters gone, once the unpruned network is there to compare with.

    >>> from pathlib import Path
    >>> list(resnet20(Records(Path("nowhere"))))
    []
    """
    unpruned = records.find(baseline("cifar10", "resnet20"))
    lines = {name: finetuned(records, needs) for name, needs in sweeps_of_resnet20().items()}
    if unpruned is not None and any(lines.values()):
        caption = "ResNet-20 on CIFAR-10: loss of accuracy against pruned parameters, by OT and by ISTA."
        full, by_ista = 100 * unpruned.results["accuracy_sparse"], finetuned(records, ista())
        yield Sketch("resnet20", caption, partial(_drops, full, lines, by_ista))


def iterative(records: Records) -> Iterator[Sketch]:
    """Rounds of OT and of NS, beside OT in one shot.

    >>> from pathlib import Path
    >>> list(iterative(Records(Path("nowhere"))))
    []
    """
    found = [record for needed in row("iterative").needs if (record := records.find(needed))]
    if found:
        one_shot = points(records, sweep("cifar10", "vgg14"))
        title = f"VGG-14 on CIFAR-10: pruning in rounds, λ={lam_text(found[0].experiment.training.lam)}"
        caption = f"{title}, by OT and by NS, beside OT in one shot at every λ."
        yield Sketch("iterative", caption, partial(_rounds, title, found, one_shot))


def statistics(records: Records) -> Iterator[Sketch]:
    """Channels of every layer, the paper's and ours, for each data set that there are seeds of.

    >>> from pathlib import Path
    >>> list(statistics(Records(Path("nowhere"))))
    []
    """
    for data in DATA_NAMES:
        if any(column(records, data, rule) for rule in RULES):
            title = f"VGG-14 on {DATA_NAMES[data]}, λ=2e-4 unless said: channels kept in every layer"
            bars = [list(_bars(records, data, rule)) for rule in RULES]
            yield Sketch(f"statistics-{data}", f"{title}, mean and spread over seeds.", partial(_channels, title, bars))


def _drops(unpruned: float, lines: Mapping[str, Sequence[Point]], by_ista: Sequence[Point]) -> "Figure":
    theirs = paper.table("points")["ye2018"]
    drawn, axes = figure("ResNet-20 on CIFAR-10: loss of accuracy against pruned parameters", 1, 1, (6.4, 4.4))
    ax = axes[0, 0]
    for (name, found), colour in zip(lines.items(), (OT, INSIDE), strict=True):
        for stage, label, dotted in (("finetuned", "fine-tuned", False), ("recalibrated", "recalibrated only", True)):
            look: dict[str, Any] = AROUND if dotted else {}
            there = [point for point in found if point.seeds(stage)]
            x, y = [p.cost("parameters", stage).mean for p in there], [unpruned - p.accuracy(stage).mean for p in there]
            if there:
                ax.plot(x, y, color=colour, marker="o", label=f"{name}, {label}", **look)
    if by_ista:
        lost = [unpruned - p.accuracy("finetuned").mean for p in by_ista]
        x = [p.cost("parameters", "finetuned").mean for p in by_ista]
        ax.plot(x, lost, color=ISTA, marker="D", label="ISTA, our run, fine-tuned")
    removed = [100 * share for share in theirs["removed_parameters"]]
    lost = [theirs["baseline"] - accuracy for accuracy in theirs["accuracy"]]
    ax.plot(removed, lost, color=PAPER, marker="*", markersize=10, linewidth=1, label="Ye et al., as they report")
    ax.set_xlabel("pruned parameters (%)")
    ax.set_ylabel("accuracy lost (points)")
    ax.invert_yaxis()
    legend(ax, loc="lower left")
    return drawn


def _rounds(title: str, found: Sequence[Record], one_shot: Sequence[Point]) -> "Figure":
    drawn, axes = figure(title, 2, 1, (6.8, 7.4), sharex=True)
    titles = {Restart.FINETUNED: "fine-tuned in every round", Restart.SCRATCH: "from scratch in every round"}
    for ax, (restart, how) in zip(axes[:, 0], titles.items(), strict=True):
        line(ax, one_shot, "flops", restart, "OT, one shot", color=FAINT, marker=".")
        _write_names(ax, one_shot, restart)
        there = {one.experiment.pruning.rule: one for one in found if one.content["restart"] == restart}
        for record in there.values():
            _one_iteration(ax, record)
        if missing := [name for rule, (name, *_) in RULES.items() if rule not in there]:
            said = f"no rounds of {' or '.join(missing)} are recorded yet"
            ax.text(0.5, 0.5, said, ha="center", transform=ax.transAxes)
        ax.margins(0.08, 0.12)
        ax.set_title(how)
        ax.set_ylabel("test accuracy (%)")
        legend(ax, loc="lower left")
    axes[-1, 0].set_xlabel("pruned FLOPs (%)")
    return drawn


def _write_names(ax: "Axes", one_shot: Sequence[Point], stage: str) -> None:
    """Write the λ of each point below it."""
    for point in one_shot:
        if point.seeds(stage):
            place = (point.cost("flops", stage).mean, point.accuracy(stage).mean)
            ax.annotate(point.label, place, (-13, -6), textcoords="offset points", ha="center", va="top", fontsize=7.5)


def _one_iteration(ax: "Axes", record: Record) -> None:
    name, color, marker = RULES[record.experiment.pruning.rule]
    there = [one for one in record.content["rounds"] if one["accuracy"] is not None]
    x, y = ([100 * (1 - one["flops"]) for one in there], [100 * one["accuracy"] for one in there])
    ax.plot(x, y, color=color, marker=marker, label=f"{name}, round after round")
    for one, *place in zip(there, x, y, strict=True):
        ax.annotate(str(one["round"]), tuple(place), textcoords="offset points", xytext=(4, 4), fontsize=7.5)


@dataclass(frozen=True)
class _Bars:
    """What every layer keeps, mean and spread, by somebody."""

    label: str
    layers: Sequence[Spread]
    color: str


def _bars(records: Records, data: str, rule: str) -> Iterator[_Bars]:
    """The paper's, ours, and for Network Slimming ours at the λ that it has in the rest of the paper."""
    name, color, _ = RULES[rule]
    runs = paper.table("statistics")["runs"]
    yield _Bars(f"{name}, paper ({counted(runs, 'seed')})", paper.statistics(data, rule).layers, FAINT)
    if (ours := column(records, data, rule)) is not None:
        yield _here(name, ours, color)
    if rule == "ns" and (elsewhere := slimming_as_elsewhere(records, data)) is not None:
        yield _here(ELSEWHERE, elsewhere, NS_ELSEWHERE)


def _here(name: str, found: Column, color: str) -> _Bars:
    return _Bars(f"{name}, here ({counted(found.seeds, 'seed')})", found.pruned.layers, color)


def _channels(title: str, bars: Sequence[Sequence[_Bars]]) -> "Figure":
    drawn, axes = figure(title, len(bars), 1, (8.4, 6), sharex=True)
    for ax, group in zip(axes[:, 0], bars, strict=True):
        for at, one in enumerate(group):
            _draw_bars(ax, one, GROUP_WIDTH / len(group), at - (len(group) - 1) / 2)
        ax.set_ylabel("channels kept")
        ax.grid(axis="x", visible=False)
        legend(ax, loc="upper left")
    axes[-1, 0].set_xlabel("layer")
    axes[-1, 0].set_xticks(range(1, len(bars[-1][0].layers) + 1))
    return drawn


def _draw_bars(ax: "Axes", bars: _Bars, width: float, offset: float) -> None:
    """Bars of a width, so many widths beside the number of their layer."""
    places = [number + offset * width for number in range(1, len(bars.layers) + 1)]
    means, stds = [one.mean for one in bars.layers], [one.std for one in bars.layers]
    style: dict[str, Any] = {"color": bars.color, "label": bars.label, "error_kw": {"elinewidth": 1}}
    ax.bar(places, means, width=0.95 * width, yerr=stds, **style)
