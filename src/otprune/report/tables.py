"""The tables of the page: the paper's value, ours, and the difference; or ours alone where the paper gives none."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import otprune as ot
from otprune import models
from otprune.experiments import paper
from otprune.experiments.iterate import Restart
from otprune.experiments.reproduce import made_images
from otprune.experiments.reproduce.needed import BEST, baseline, lam_text
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import PAIRS, ista, row, sweeps_of_resnet20
from otprune.experiments.stages import totals
from otprune.report.costs import pair
from otprune.report.edge import edge
from otprune.report.goals import goals
from otprune.report.markdown import NONE, WHO, difference, markdown_table, percent
from otprune.report.over_seeds import statistics
from otprune.report.points import CLASSES, MODEL_NAMES, Point, finetuned, subject
from otprune.report.slimming_limit import limits

STAGES = {
    "sparse": "unpruned",
    "pruned": "as pruned",
    "folded": "β folded",
    "recalibrated": "recalibrated",
    "finetuned_1": "1 epoch",
    "finetuned": "fine-tuned",
    "scratch": "from scratch",
}
BRACKETS = "In brackets: of how many of the seeds, where not all have been through the stage."
OF_FINETUNED = "What was pruned is that of the seeds that were fine-tuned."
DROP_STAGES = ("sparse", "recalibrated", "finetuned_1", "finetuned")
Table = Callable[[Records], Iterator[str]]


def baselines(records: Records) -> Iterator[str]:
    """FLOPs, parameters and accuracy of the unpruned networks.

    >>> from pathlib import Path
    >>> len(next(baselines(Records(Path("nowhere")))).splitlines()) - 2
    6
    """
    header = ["network", *(f"{what}, {who}" for what in ("FLOPs (M)", "params (M)", "accuracy (%)") for who in WHO)]
    yield markdown_table(header, [_baseline_row(records, data, model) for data, model in PAIRS])


def _baseline_row(records: Records, data: str, model: str) -> list[str]:
    theirs, unpruned = paper.baselines()[data, model], records.find(baseline(data, model))
    cost = unpruned_cost(data, model)
    accuracy = None if unpruned is None else 100 * unpruned.results["accuracy_sparse"]
    cells = [difference(getattr(theirs, kind), cost[kind], unit=1e6) for kind in ("flops", "parameters")]
    return [subject(data, model), *cells[0], *cells[1], *difference(theirs.accuracy, accuracy)]


def unpruned_cost(data: str, model: str) -> Mapping[str, int]:
    """What a network costs before it is pruned, which needs no run.

    >>> unpruned_cost("cifar10", "vgg14")["parameters"]
    14728266
    """
    with torch.device("meta"):
        network = models.build(model, CLASSES[data])
    return totals(ot.cost(network, torch.zeros(1, 3, 32, 32, device="meta")))


def shifts(records: Records) -> Iterator[str]:
    """What each shift of the thresholds comes to.

    >>> from pathlib import Path
    >>> list(shifts(Records(Path("nowhere"))))
    []
    """
    record = records.find(row("threshold-demo").needs[0])
    if record is not None:
        header = ("shift (log10)", "pruned FLOPs", "as pruned", "recalibrated", "fine-tuned")
        yield markdown_table(header, [_shift_row(one) for one in record.content["shifts"]])


def _shift_row(one: Mapping[str, Any]) -> list[str]:
    accuracies = [_accuracy(one, stage) for stage in ("pruned", "recalibrated", "finetuned")]
    return [f"{one['shift']:+g}", percent(100 * (1 - one["flops"]), 1), *accuracies]


def sweeps(records: Records) -> Iterator[str]:
    """Every network of the sweeps; the paper has these as figures without numbers.

    >>> from pathlib import Path
    >>> list(sweeps(Records(Path("nowhere"))))
    []
    """
    for data, model in PAIRS:
        found = pair(records, data, model)
        rows = [("OT", point) for point in found.ot] + [("NS", point) for point in found.ns]
        if rows:
            header = (subject(data, model), "", "pruned FLOPs", "pruned params", *STAGES.values(), "seeds")
            yield markdown_table(header, [_sweep_row(method, point) for method, point in rows], texts=2)
        if any(_are_some(point, stage) for _, point in rows for stage in STAGES):
            yield BRACKETS


def _sweep_row(method: str, point: Point) -> list[str]:
    costs = [percent(point.cost(kind).mean, 1) for kind in ("flops", "parameters")]
    return [method, point.label, *costs, *(_cell(point, stage) for stage in STAGES), str(point.seeds())]


def _cell(point: Point, stage: str) -> str:
    """The accuracy, and of how many seeds where it is not of all."""
    if not point.seeds(stage):
        return NONE
    return percent(point.accuracy(stage).mean) + (f" ({point.seeds(stage)})" if _are_some(point, stage) else "")


def _are_some(point: Point, stage: str) -> bool:
    """Whether some seeds, but not all, have been through a stage."""
    return 0 < point.seeds(stage) < point.seeds()


def resnet20(records: Records) -> Iterator[str]:
    """OT's networks beside those that Ye et al. report.

    >>> from pathlib import Path
    >>> len(next(resnet20(Records(Path("nowhere")))).splitlines()) - 2
    2
    """
    theirs, unpruned = paper.table("points")["ye2018"], records.find(baseline("cifar10", "resnet20"))
    full = None if unpruned is None else 100 * unpruned.results["accuracy_sparse"]
    ours = {**sweeps_of_resnet20(), "ISTA": ista()}
    found = [(rule, point) for rule, needs in ours.items() for point in finetuned(records, needs)]
    rows = [[rule, f"{point.label}, our run", *_drop(point, full)] for rule, point in found]
    for share, accuracy in zip(theirs["removed_parameters"], theirs["accuracy"], strict=True):
        lost = f"{theirs['baseline'] - accuracy:.2f}"
        cells = [NONE, percent(100 * share, 0), NONE, NONE, NONE, NONE, percent(accuracy), lost, NONE]
        rows.append(["Ye et al.", "as they report", *cells])
    costs = ("pruned FLOPs", "pruned params", "whole branches gone")
    header = ("ResNet-20 on CIFAR-10", "", *costs, *map(STAGES.__getitem__, DROP_STAGES), "points lost", "seeds")
    yield markdown_table(header, rows, texts=2)
    if any(_are_some(point, stage) for _, point in found for stage in DROP_STAGES):
        yield f"{BRACKETS} {OF_FINETUNED}"
    yield from _resnet20_baseline(full)


def _drop(point: Point, full: float | None) -> list[str]:
    costs = [percent(point.cost(kind, "finetuned").mean, 1) for kind in ("flops", "parameters")]
    branches = point.branches("finetuned")
    stages = [_cell(point, stage) for stage in DROP_STAGES]
    lost = NONE if full is None else f"{full - point.accuracy('finetuned').mean:.2f}"
    return [*costs, NONE if branches is None else f"{branches:g}", *stages, lost, str(point.seeds())]


def _resnet20_baseline(full: float | None) -> Iterator[str]:
    theirs = paper.baselines()["cifar10", "resnet20"].accuracy
    cells = difference(theirs, full)
    yield f"Unpruned: paper {cells[0]} %, here {cells[1]}, difference {cells[2]}."


def iterative(records: Records) -> Iterator[str]:
    """Every round of every way of pruning in rounds.

    >>> from pathlib import Path
    >>> list(iterative(Records(Path("nowhere"))))
    []
    """
    found = [record for needed in row("iterative").needs if (record := records.find(needed))]
    rows = [_round_row(record, one) for record in found for one in record.content["rounds"]]
    if rows:
        yield markdown_table(("rounds", "round", "pruned FLOPs", "pruned params", "accuracy"), rows)


def _round_row(record: Record, one: Mapping[str, Any]) -> list[str]:
    ways = {Restart.FINETUNED: "fine-tuned", Restart.SCRATCH: "from scratch"}
    method = f"{record.experiment.pruning.rule.upper()}, {ways[record.content['restart']]}"
    costs = [percent(100 * (1 - one[kind]), 1) for kind in ("flops", "parameters")]
    accuracy = None if one["accuracy"] is None else 100 * one["accuracy"]
    return [method, str(one["round"]), *costs, percent(accuracy)]


def ilsvrc(records: Records) -> Iterator[str]:
    """The paper's accuracies, and the costs that can be compared without the data.

    >>> from pathlib import Path
    >>> len(next(ilsvrc(Records(Path("nowhere")))).splitlines()) - 2
    6
    """
    rows = [line for model in paper.table("ilsvrc") for line in _ilsvrc_rows(records, model)]
    header = ("network", "method", "accuracy (%), paper", "GFLOPs, paper", "GFLOPs, here", "difference")
    yield markdown_table(header, rows, texts=2)
    ran = [MODEL_NAMES[model] for model in made_images.MODELS if records.at(made_images.place(model))]
    yield f"Run for a few steps on made images: {', '.join(ran) or 'nothing yet'}."


def _ilsvrc_rows(records: Records, model: str) -> Iterator[list[str]]:
    found = records.at(made_images.place(model))
    cost = found.content["cost_of_all_classes"]["flops"] if found else None
    for method, cells in paper.table("ilsvrc")[model].items():
        accuracies = cells["accuracy"] if isinstance(cells["accuracy"], list) else [cells["accuracy"]]
        flops = difference(cells["flops"], cost if method == "baseline" else None, unit=1e9)
        yield [MODEL_NAMES[model], _method(method, cells), " / ".join(f"{one:.2f}" for one in accuracies), *flops]


def _method(method: str, cells: Mapping[str, Any]) -> str:
    if method == "baseline":
        return "unpruned"
    return f"NS, {100 * cells['ratio']:g} % of the channels" if method == "ns" else f"OT, λ={lam_text(cells['lam'])}"


TABLES: dict[str, Table] = {
    "baselines": baselines,
    "threshold-demo": shifts,
    "accuracy-vs-cost": sweeps,
    "statistics": statistics,
    "one-training": limits,
    "resnet20": resnet20,
    "iterative": iterative,
    "edge-latency": edge,
    "ilsvrc": ilsvrc,
    BEST: goals,
}


def _accuracy(found: Mapping[str, Any], stage: str) -> str:
    value = found.get(f"accuracy_{stage}")
    return percent(None if value is None else 100 * value)
