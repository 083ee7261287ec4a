"""Which epoch: what it would add to report the one that is best on the test images instead of the last one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from otprune.experiments import paper
from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import Needed, baseline, lam_text
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS, seeds, sweep
from otprune.experiments.reproduce.watching import BY_EPOCH
from otprune.report.columns import MODEL, RULES
from otprune.report.markdown import markdown_table, spread_text
from otprune.report.points import DATA_NAMES, spread, subject

HEADER = ("which epoch", "seeds", "paper", "the last", "all on average", "the best on the test images", "picking adds")
EXPLAINED = (
    "In this table alone the test images choose: the best of the epochs at the rate that a run ends with, each of "
    "which was measured. What picking adds is told over the average of them, since the last may be a lucky or an "
    "unlucky one. Seeds that were measured after the last epoch only are left out."
)
HISTORY = {"train": "training", "finetune": "finetuning"}


@dataclass(frozen=True)
class Picked:
    """Accuracies in percent over some seeds: of the last epoch, of all on average, and of the best on the test images.

    `gain` is how far the best is above the average.
    """

    seeds: int
    last: Spread
    average: Spread
    best: Spread
    gain: Spread


def picking(records: Records) -> Iterator[str]:
    """The paper's accuracies beside those of the last, the average and the best epoch, where every one was measured.

    >>> from pathlib import Path
    >>> list(picking(Records(Path("nowhere"))))
    []
    """
    rows = [*_unpruned(records), *_pruned(records)]
    if rows:
        yield markdown_table(HEADER, rows)
        yield EXPLAINED


def picked(records: Records, needs: Sequence[Needed], stage: str) -> Picked | None:
    """What the runs come to whose epochs were all measured in this stage, if there are any.

    >>> from pathlib import Path
    >>> picked(Records(Path("nowhere")), [], "finetune")
    """
    there = [record.results for needed in needs if (record := records.find(needed))]
    found = [[100 * one for one in measured] for results in there if (measured := _measured(results, stage))]
    if not found:
        return None
    return Picked(
        seeds=len(found),
        last=spread(one[-1] for one in found),
        average=spread(map(fmean, found)),
        best=spread(map(max, found)),
        gain=spread(max(one) - fmean(one) for one in found),
    )


def _measured(results: Mapping[str, Any], stage: str) -> list[float]:
    """The accuracy of every epoch at the rate that the stage ended with; nothing where one was not measured."""
    epochs, by_epoch = results.get(HISTORY[stage]) or [], results.get(BY_EPOCH, {}).get(stage, {})
    asked = [str(epoch["epoch"]) for epoch in epochs if epoch["rate"] == epochs[-1]["rate"]]
    return [by_epoch[epoch] for epoch in asked] if all(epoch in by_epoch for epoch in asked) else []


def _unpruned(records: Records) -> Iterator[Sequence[str]]:
    for data, model in PAIRS:
        if found := picked(records, [baseline(data, model)], "train"):
            theirs = f"{paper.baselines()[data, model].accuracy:.2f}"
            yield f"{subject(data, model)}, unpruned", *_cells(theirs, found)


def _pruned(records: Records) -> Iterator[Sequence[str]]:
    for data in DATA_NAMES:
        for rule in RULES:
            if found := picked(records, seeds(data, rule), "finetune"):
                theirs = spread_text(paper.statistics(data, rule).accuracy)
                yield f"{subject(data, MODEL)}, {rule.upper()}", *_cells(theirs, found)
    yield from _headline(records)


def _headline(records: Records) -> Iterator[Sequence[str]]:
    """Each network that may be the paper's, which does not say by which λ it came about."""
    asked = paper.table("points")["headline"]
    for needed in sweep(asked["data"], asked["model"]):
        if found := picked(records, [needed], "finetune"):
            lam = lam_text(needed.experiment.training.lam)
            name = f"{subject(asked['data'], asked['model'])}, OT, λ={lam}"
            yield name, *_cells(f"{asked['accuracy']:.2f}", found)


def _cells(theirs: str, found: Picked) -> list[str]:
    ours = [spread_text(one) for one in (found.last, found.average, found.best)]
    return [str(found.seeds), theirs, *ours, f"+{spread_text(found.gain)}"]
