"""The figures of the page for papers, drawn by matplotlib from the same content."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import otprune as ot
from otprune.report.html.points import PRUNED_BEFORE, UNPRUNED
from otprune.report.style import BASELINE, FAINT, NS, OT, PAPER, Sketch, figure, legend, write
from otprune.thresholds import Thresholds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
BINS = 50
SHIFTED = {"pruned": ("as pruned", ":"), "recalibrated": ("recalibrated", "-"), "finetuned": ("fine-tuned", "--")}
KINDS = {"flops": "FLOPs", "parameters": "parameters"}


def draw(shown: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all that can be drawn of a page's content, as SVG and PNG; return the files.

    >>> draw({"runs": [], "paper": []}, Path("figures"))
    []
    """
    return [path for sketch in sketches(shown) for path in write(sketch, folder)]


def sketches(shown: Mapping[str, Any]) -> Iterator[Sketch]:
    """What can be drawn: for each run its layers, its network, its training and its shifts, and all runs together.

    >>> list(sketches({"runs": [], "paper": []}))
    []
    """
    stems = _stems([run["name"] for run in shown["runs"]])
    for stem, run in zip(stems, shown["runs"], strict=True):
        yield from _of_run(stem, run)
    for pair in shown["paper"]:
        runs = [run for run in shown["runs"] if run["title"] == pair["title"] and _is_pruned(run)]
        if runs:
            stem = f"accuracy-against-cost-{_stem(pair['title'])}"
            yield Sketch(stem, "Accuracy against cost.", partial(_against_cost, pair["title"], runs, pair["points"]))


def _of_run(stem: str, run: Mapping[str, Any]) -> Iterator[Sketch]:
    if run["gammas"]:
        yield Sketch(f"{stem}-layers", "|γ| of every layer, and the thresholds.", partial(_layers, run))
    if run["layers"]:
        yield Sketch(f"{stem}-network", "Channels that are left.", partial(_network, run))
    if run["trainings"]:
        yield Sketch(f"{stem}-training", "Training epoch by epoch.", partial(_trainings, run))
    if run["shifts"] is not None:
        yield Sketch(f"{stem}-shifts", "Accuracy at shifted thresholds.", partial(_shifts, run))


def _stems(names: Sequence[str]) -> list[str]:
    """Names of files, different where names are."""
    made = [_stem(name) for name in names]
    return [one if made.count(one) == 1 else f"{one}-{number}" for number, one in enumerate(made, 1)]


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "run"


def _is_pruned(run: Mapping[str, Any]) -> bool:
    gained = run["gained"]
    return None not in (gained["accuracy"][1], gained["flops"][1], gained["parameters"][1])


def _plain(name: str) -> str:
    """A name in which matplotlib finds no formula."""
    return name.replace("$", r"\$")


def _titled(run: Mapping[str, Any], what: str) -> str:
    return _plain(f"{run['title']}, {run['name']}: {what}")


def _layers(run: Mapping[str, Any]) -> "Figure":
    gammas = {one["layer"]: np.abs(np.array(one["values"], np.float32)).astype(float) for one in run["gammas"]}
    rows, title = -(-len(gammas) // COLUMNS), _titled(run, "|γ|, zeros in the leftmost bar")
    drawn, axes = figure(title, rows, COLUMNS, (10, 1.7 * rows + 0.6), sharex=True)
    everything = np.concatenate(list(gammas.values()))
    low = float(everything[everything > 0].min(initial=1.0)) / 3  # where zeros are drawn
    bins = np.geomspace(low, max(float(everything.max()), 2 * low), BINS)
    limits = _limits(run, gammas)
    for ax, (name, gamma) in zip(axes.flat, gammas.items(), strict=False):
        _histogram(ax, name, gamma, bins, limits.layers[name] if gamma.any() else np.inf)
        if limits.branch is not None:
            ax.axvline(limits.branch, color=NS, linestyle="--", linewidth=1)
    for place, ax in enumerate(axes.flat):
        ax.set_visible(place < len(gammas))
        ax.tick_params(labelbottom=place >= len(gammas) - COLUMNS)
    return drawn


def _limits(run: Mapping[str, Any], gammas: Mapping[str, Any]) -> Thresholds:
    """The thresholds that the run was pruned at, where they were recorded; else OT's own."""
    recorded = {one["name"]: one["threshold"] for one in run["layers"]}
    if all(recorded.get(name) is not None for name in gammas):
        return Thresholds(recorded, run["branch"])
    return ot.OptimalThreshold(run["delta"]).thresholds({name: torch.from_numpy(one) for name, one in gammas.items()})


def _histogram(ax: "Axes", name: str, gamma: Any, bins: Any, threshold: float) -> None:
    ax.hist(np.maximum(gamma, bins[0]), bins=bins.tolist(), color=FAINT)
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=1)
    if np.isfinite(threshold):
        ax.axvline(threshold, color=OT)
    ax.set_title(_plain(f"{name}: {int((gamma >= threshold).sum())} of {len(gamma)}"), fontsize=8.5)


def _network(run: Mapping[str, Any]) -> "Figure":
    layers, title = run["layers"], _titled(run, "channels left")
    drawn, axes = figure(title, 1, 1, (7, max(2.4, 0.24 * len(layers) + 0.8)))
    ax, places = axes[0, 0], range(len(layers))
    for kind, color in (("channels", FAINT), ("kept", OT)):
        widths = [layer[kind] for layer in layers]
        ax.barh(places, widths, left=[-width / 2 for width in widths], color=color, height=0.8)
    ax.set_yticks(places, [_plain(f"{one['name']}: {one['kept']} of {one['channels']}") for one in layers], fontsize=8)
    ax.invert_yaxis()
    ax.set_xticks([])
    ax.grid(visible=False)
    return drawn


def _trainings(run: Mapping[str, Any]) -> "Figure":
    trainings = run["trainings"]
    drawn, axes = figure(_titled(run, "training"), len(trainings), 2, (9, 2.8 * len(trainings)))
    for (left, right), one in zip(axes, trainings, strict=True):
        for name, label, color in (("accuracy", "training accuracy", OT), ("flops", "FLOPs that OT would keep", NS)):
            _curve(left, one["epoch"], [value and 100 * value for value in one[name]], color, label)
        _curve(right, one["epoch"], one["loss"], OT, "loss")
        left.set_title(one["name"])
        left.set_ylabel("%")
        for ax in (left, right):
            ax.set_xlabel("epoch")
            legend(ax)
    return drawn


def _curve(ax: "Axes", epochs: Sequence[int], values: Sequence[float | None], color: str, label: str) -> None:
    """A line through what is there, where anything is; a single epoch is marked, since a line of one is not seen."""
    there = [(epoch, value) for epoch, value in zip(epochs, values, strict=True) if value is not None]
    if there:
        ax.plot(*zip(*there, strict=True), color=color, label=label, marker="o" if len(there) == 1 else None)


def _shifts(run: Mapping[str, Any]) -> "Figure":
    drawn, axes = figure(_titled(run, "shifted thresholds"), 1, 1, (6.4, 3.8))
    ax = axes[0, 0]
    for stage, (label, style) in SHIFTED.items():
        there = [(100 * one["flops"], 100 * one[stage]) for one in run["shifts"]["points"] if stage in one]
        if there:
            ax.plot(*zip(*there, strict=True), color=OT, linestyle=style, marker="o", label=label)
    before, after = run["gained"]["flops"]
    if before and after:
        ax.axvline(100 * after / before, color=BASELINE, linestyle="--", label="this run")
    ax.set_xlabel("FLOPs left (%)")
    ax.set_ylabel(f"accuracy on {run['shifts']['of']} (%)")
    legend(ax, loc="lower right")
    return drawn


def _against_cost(title: str, runs: Sequence[Mapping[str, Any]], papers: Sequence[Mapping[str, Any]]) -> "Figure":
    drawn, axes = figure(_plain(f"{title}: accuracy against cost"), 1, 2, (9, 3.8), sharey=True)
    for ax, (kind, name) in zip(axes[0], KINDS.items(), strict=True):
        for began, filled in ((UNPRUNED, "full"), (PRUNED_BEFORE, "none")):
            those = [run for run in runs if run["gained"]["before"] == began]
            _networks(ax, those, kind, 0, color=BASELINE, marker="s", fillstyle=filled, label=began)
        _networks(ax, runs, kind, 1, color=OT, marker="o", label="pruned")
        theirs = [(point[kind] / 1e6, point["accuracy"]) for point in papers if point[kind] is not None]
        if theirs:
            ax.plot(*zip(*theirs, strict=True), linestyle="none", color=PAPER, marker="*", markersize=9, label="paper")
        ax.set_xlabel(f"{name} (millions)")
        _logarithmic(ax)
    axes[0, 0].set_ylabel("accuracy (%)")
    legend(axes[0, 0], loc="best")
    return drawn


def _networks(ax: "Axes", runs: Sequence[Mapping[str, Any]], kind: str, index: int, **look: Any) -> None:
    """Those before the runs, or after them, where there are any."""
    both = [[run["gained"][what][index] for what in (kind, "accuracy")] for run in runs]
    there = [(cost / 1e6, 100 * accuracy) for cost, accuracy in both if None not in (cost, accuracy)]
    if there:
        ax.plot(*zip(*there, strict=True), linestyle="none", **look)


def _logarithmic(ax: "Axes") -> None:
    """With plain numbers, and not too many of them."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
