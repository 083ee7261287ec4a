"""How scaling factors are distributed, where thresholds fall, and what happens when these are shifted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import otprune as ot
from otprune.experiments import paper
from otprune.experiments.reproduce.needed import lam_text
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import row
from otprune.report.style import AROUND, BASELINE, FAINT, NS, OT, Sketch, figure, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALLEST = 1e-12  # where a γ of zero is drawn
BINS = 60
UNDER, OVER = "#fff3e0", "#fdeaea"  # pale orange and pale red, as the paper has them
ASKED = paper.table("points")["distributions"]


def layer_distributions(records: Records) -> Iterator[Sketch]:
    """Two layers of one network, whose important γ lie apart.

    >>> from pathlib import Path
    >>> list(layer_distributions(Records(Path("nowhere"))))
    []
    """
    record = records.with_gammas(row("layer-distributions").needs[0])
    if record is not None:
        caption = "VGG-14 on CIFAR-10: |γ| of two layers, OT's threshold in each, and global thresholds for both."
        yield Sketch("layer-distributions", caption, partial(_layers, record))


def lambda_distributions(records: Records) -> Iterator[Sketch]:
    """One layer under a weak and a strong penalty, where both are there.

    >>> from pathlib import Path
    >>> list(lambda_distributions(Records(Path("nowhere"))))
    []
    """
    found = [record for needed in row("lambda-distributions").needs if (record := records.with_gammas(needed))]
    if len(found) == len(ASKED["lambdas"]):
        caption = f"VGG-14 on CIFAR-10: |γ| of batch norm {ASKED['lambdas_layer']} under two λ, and OT's thresholds."
        yield Sketch("lambda-distributions", caption, partial(_lambdas, found))


def threshold_demo(records: Records) -> Iterator[Sketch]:
    """A layer's γ and its threshold, and what shifting all thresholds costs and gains.

    >>> from pathlib import Path
    >>> list(threshold_demo(Records(Path("nowhere"))))
    []
    """
    record = records.find(row("threshold-demo").needs[0])
    if record is not None:
        caption = "VGG-14 on CIFAR-10, λ=1e-4: where the threshold falls, and accuracy at shifted thresholds."
        yield Sketch("threshold-demo", caption, partial(_demo, record))


def _layers(record: Record) -> "Figure":
    title = f"VGG-14 on CIFAR-10, λ={lam_text(record.experiment.training.lam)}: scaling factors of two layers"

    def global_thresholds(ax: "Axes", record: Record) -> None:
        gammas = _tensors(record)
        for ratio, style in zip(ASKED["ratios"], (":", "--"), strict=True):
            threshold = next(iter(ot.GlobalRatio(ratio).thresholds(gammas).layers.values()))
            ax.axvline(threshold, color=NS, linestyle=style, label=f"global threshold for {100 * ratio:g} %")

    return _stacked(title, [(record, number) for number in ASKED["layers"]], global_thresholds)


def _lambdas(found: Sequence[Record]) -> "Figure":
    title = f"VGG-14 on CIFAR-10: scaling factors of batch norm {ASKED['lambdas_layer']} under two λ"
    return _stacked(title, [(record, ASKED["lambdas_layer"]) for record in found])


def _stacked(
    title: str, shown: Sequence[tuple[Record, int]], complete: Callable[["Axes", Record], None] | None = None
) -> "Figure":
    """The scaling factors of layers of records, one above the other, each completed in a way of its own."""
    drawn, axes = figure(title, len(shown), 1, (6.8, 5.6), sharex=True)
    for ax, (record, number) in zip(axes[:, 0], shown, strict=True):
        _histogram(ax, record, number)
        if complete is not None:
            complete(ax, record)
    legend(axes[0, 0], loc="upper left")
    axes[-1, 0].set_xlabel("|γ|")
    return drawn


def _demo(record: Record) -> "Figure":
    title = f"VGG-14 on CIFAR-10, λ={lam_text(record.experiment.training.lam)}: is the optimal threshold at the edge?"
    drawn, axes = figure(title, 4, 1, (6.8, 11.4))
    _histogram(axes[0, 0], record, ASKED["demo_layer"])
    axes[0, 0].set_xlabel("|γ|")
    legend(axes[0, 0], loc="upper left")
    _shifts(axes[1, 0], record, {"pruned": ("as pruned", AROUND), "recalibrated": ("recalibrated", {})})
    axes[1, 0].set_title("thresholds of all layers shifted, without any training")
    _shifts(axes[2, 0], record, {"finetuned": ("fine-tuned", {})})
    axes[2, 0].set_title("thresholds of all layers shifted, fine-tuned")
    _shifts(axes[3, 0], record, {"pruned": ("as pruned", AROUND), "finetuned": ("fine-tuned", {})})
    axes[3, 0].set_title("the same, close up")
    _close_up(axes[3, 0], record)
    return drawn


def _close_up(ax: "Axes", record: Record) -> None:
    """What is near the threshold: the shifts that lie a factor of ten below it, at most, and the first past it."""
    shifts = sorted(record.content["shifts"], key=lambda one: float(one["shift"]))
    past = [one for one in shifts if one["shift"] > 0]
    shown = [one for one in shifts if -1 <= one["shift"] <= 0] + past[:1]
    pruned = [100 * (1 - one["flops"]) for one in shown]
    accuracies = [100 * one[f"accuracy_{stage}"] for one in shown for stage in ("pruned", "finetuned")]
    ax.set_xlim(min(pruned) - 0.3, max(pruned) + 0.6)
    ax.set_ylim(min(accuracies) - 0.3, max(accuracies) + 0.3)


def _histogram(ax: "Axes", record: Record, number: int) -> None:
    """The |γ| of a layer, counted from 1, on a logarithmic axis, and OT's threshold."""
    name, gamma = list(_tensors(record).items())[number - 1]
    magnitudes = gamma.abs().clamp(min=SMALLEST).numpy()
    low, high = np.floor(np.log10(magnitudes.min())), np.ceil(np.log10(magnitudes.max()))
    ax.hist(magnitudes, bins=np.logspace(low, max(high, low + 1), BINS).tolist(), color=FAINT)
    threshold = ot.optimal_threshold(gamma, record.experiment.pruning.delta)
    ax.axvline(threshold, color=OT, label=f"OT (δ={record.experiment.pruning.delta:g})")
    ax.set_xscale("log")
    kept = int((gamma.abs() >= threshold).sum())
    lam = lam_text(record.experiment.training.lam)
    ax.set_title(f"batch norm {number} ({name}), λ={lam}: OT keeps {kept} of {len(gamma)} channels")
    ax.set_ylabel("channels")


def _shifts(ax: "Axes", record: Record, stages: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
    """Accuracy against pruned FLOPs, shift by shift; the regions of under- and over-pruning are shaded."""
    shifts: Sequence[Mapping[str, Any]] = record.content["shifts"]
    pruned = [100 * (1 - one["flops"]) for one in shifts]
    edge = next((p for p, one in zip(pruned, shifts, strict=True) if one["shift"] == 0), None)
    for stage, (label, look) in stages.items():
        there = [(p, one) for p, one in zip(pruned, shifts, strict=True) if f"accuracy_{stage}" in one]
        accuracies = [100 * one[f"accuracy_{stage}"] for _, one in there]
        ax.plot([p for p, _ in there], accuracies, color=OT, marker="o", label=label, **look)
    for p, one in zip(pruned, shifts, strict=True):
        if one["shift"] > 0:
            accuracy = next(100 * one[f"accuracy_{stage}"] for stage in stages if f"accuracy_{stage}" in one)
            ax.annotate(f"{one['shift']:+g}", (p, accuracy), textcoords="offset points", xytext=(5, 3), fontsize=7.5)
    if edge is not None:
        ax.axvline(edge, color=BASELINE, linestyle="--", label="OT's thresholds, not shifted")
        ax.axvspan(min(pruned), edge, color=UNDER, zorder=0)
        ax.axvspan(edge, max(pruned), color=OVER, zorder=0)
    ax.axhline(100 * record.content["accuracy_sparse"], color=FAINT, linestyle="--", linewidth=1, label="unpruned")
    ax.set_xlabel("pruned FLOPs (%)")
    ax.set_ylabel("test accuracy (%)")
    legend(ax, loc="lower left")


def _tensors(record: Record) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(gamma) for name, gamma in record.gammas.items()}
