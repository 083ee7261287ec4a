"""ResNet-20 against Ye et al., pruning in rounds, and the channels of every layer over the seeds."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from otprune.experiments import paper
from otprune.experiments.iterate import Restart
from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import baseline
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import ista, row, sweep, sweeps_of_resnet20
from otprune.report.columns import Column, column
from otprune.report.costs import line
from otprune.report.points import DATA_NAMES, Point, counted, finetuned, points
from otprune.report.style import FAINT, INSIDE, ISTA, NS, OT, PAPER, Sketch, figure, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        caption = "VGG-14 on CIFAR-10: pruning in rounds, by OT and by NS, beside OT in one shot."
        yield Sketch("iterative", caption, partial(_rounds, found, one_shot))


def statistics(records: Records) -> Iterator[Sketch]:
    """Channels of every layer, the paper's and ours, for each data set that there are seeds of.

    >>> from pathlib import Path
    >>> list(statistics(Records(Path("nowhere"))))
    []
    """
    for data in DATA_NAMES:
        found = {rule: column(records, data, rule) for rule in RULES}
        if any(found.values()):
            caption = f"VGG-14 on {DATA_NAMES[data]}, λ=2e-4: channels kept in every layer, mean and spread over seeds."
            yield Sketch(f"statistics-{data}", caption, partial(_channels, data, found))


def _drops(unpruned: float, lines: Mapping[str, Sequence[Point]], by_ista: Sequence[Point]) -> "Figure":
    theirs = paper.table("points")["ye2018"]
    drawn, axes = figure("ResNet-20 on CIFAR-10: loss of accuracy against pruned parameters", 1, 1, (6.4, 4.4))
    ax = axes[0, 0]
    for (name, found), colour in zip(lines.items(), (OT, INSIDE), strict=True):
        for stage, label, dotted in (("finetuned", "fine-tuned", False), ("recalibrated", "recalibrated only", True)):
            look: dict[str, Any] = {"linestyle": ":", "fillstyle": "none"} if dotted else {}
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
    ax.plot(removed, lost, color=PAPER, marker="*", markersize=10, linestyle="none", label="Ye et al., as they report")
    ax.set_xlabel("pruned parameters (%)")
    ax.set_ylabel("accuracy lost (points)")
    ax.invert_yaxis()
    legend(ax, loc="lower left")
    return drawn


def _rounds(found: Sequence[Record], one_shot: Sequence[Point]) -> "Figure":
    drawn, axes = figure("VGG-14 on CIFAR-10: pruning in rounds", 2, 1, (6.8, 7.4), sharex=True)
    titles = {Restart.FINETUNED: "fine-tuned in every round", Restart.SCRATCH: "from scratch in every round"}
    for ax, (restart, title) in zip(axes[:, 0], titles.items(), strict=True):
        line(ax, one_shot, "flops", restart, "OT, one shot (all λ)", color=FAINT, marker=".")
        for record in found:
            if record.content["restart"] == restart:
                _one_iteration(ax, record)
        ax.set_title(title)
        ax.set_ylabel("test accuracy (%)")
        legend(ax, loc="lower left")
    axes[-1, 0].set_xlabel("pruned FLOPs (%)")
    return drawn


def _one_iteration(ax: "Axes", record: Record) -> None:
    name, color, marker = RULES[record.experiment.pruning.rule]
    there = [one for one in record.content["rounds"] if one["accuracy"] is not None]
    x, y = ([100 * (1 - one["flops"]) for one in there], [100 * one["accuracy"] for one in there])
    ax.plot(x, y, color=color, marker=marker, label=f"{name}, round after round")
    for one, *place in zip(there, x, y, strict=True):
        ax.annotate(str(one["round"]), tuple(place), textcoords="offset points", xytext=(4, 4), fontsize=7.5)


def _channels(data: str, found: Mapping[str, Column | None]) -> "Figure":
    title = f"VGG-14 on {DATA_NAMES[data]}, λ=2e-4: channels kept in every layer"
    drawn, axes = figure(title, len(RULES), 1, (8.4, 6), sharex=True)
    for ax, (rule, (name, color, _)) in zip(axes[:, 0], RULES.items(), strict=True):
        theirs = paper.statistics(data, rule).layers
        _bars(ax, theirs, -0.2, color=FAINT, label=f"{name}, paper ({paper.table('statistics')['runs']} seeds)")
        if (ours := found[rule]) is not None:
            _bars(ax, ours.pruned.layers, 0.2, color=color, label=f"{name}, here ({counted(ours.seeds, 'seed')})")
        ax.set_ylabel("channels kept")
        ax.grid(axis="x", visible=False)
        legend(ax, loc="upper left")
    axes[-1, 0].set_xlabel("layer")
    axes[-1, 0].set_xticks(range(1, len(theirs) + 1))
    return drawn


def _bars(ax: "Axes", layers: Sequence[Spread], offset: float, **style: Any) -> None:
    places = [number + offset for number in range(1, len(layers) + 1)]
    means, stds = [one.mean for one in layers], [one.std for one in layers]
    ax.bar(places, means, width=0.38, yerr=stds, error_kw={"elinewidth": 1}, **style)
