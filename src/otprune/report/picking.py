"""Which epoch: what it would add to report the one that is best on the test images instead of the last one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from otprune.experiments import paper
from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import Needed, baseline
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import PAIRS, seeds
from otprune.experiments.reproduce.watching import BY_EPOCH
from otprune.report.columns import MODEL, RULES
from otprune.report.markdown import compared, difference, markdown_table
from otprune.report.points import DATA_NAMES, spread, subject

HEADER = ("which epoch", "seeds", "paper", "the last", "difference", "the best on the test images", "difference")
EXPLAINED = (
    "In this table alone the test images choose: the best of the epochs at the rate that a run ends with, each of "
    "which was measured. Seeds that were measured after the last epoch only are left out."
)


@dataclass(frozen=True)
class Picked:
    """Accuracies in percent over some seeds: of the last epoch, and of the one that is best on the test images."""

    seeds: int
    last: Spread
    best: Spread


def picking(records: Records) -> Iterator[str]:
    """The paper's accuracies beside those of the last and of the best epoch, where every epoch was measured.

    >>> from pathlib import Path
    >>> list(picking(Records(Path("nowhere"))))
    []
    """
    rows = [*_unpruned(records), *_pruned(records)]
    if rows:
        yield markdown_table(HEADER, rows)
        yield EXPLAINED


def _unpruned(records: Records) -> Iterator[Sequence[str]]:
    for data, model in PAIRS:
        if found := picked(records, [baseline(data, model)], "train"):
            theirs = paper.baselines()[data, model].accuracy
            last, best = difference(theirs, found.last.mean), difference(theirs, found.best.mean)
            yield f"{subject(data, model)}, unpruned", str(found.seeds), *last, *best[1:]


def _pruned(records: Records) -> Iterator[Sequence[str]]:
    for data in DATA_NAMES:
        for rule in RULES:
            if found := picked(records, seeds(data, rule), "finetune"):
                theirs = paper.statistics(data, rule).accuracy
                last, best = compared(theirs, found.last), compared(theirs, found.best)
                yield f"{subject(data, MODEL)}, {rule.upper()}", str(found.seeds), *last, *best[1:]


def picked(records: Records, needs: Sequence[Needed], stage: str) -> Picked | None:
    """What the runs come to whose epochs were measured in this stage, if there are any.

    >>> from pathlib import Path
    >>> picked(Records(Path("nowhere")), [], "finetune")
    """
    there = [record.results for needed in needs if (record := records.find(needed))]
    found = [by_epoch for results in there if (by_epoch := results.get(BY_EPOCH, {}).get(stage))]
    if not found:
        return None
    last = spread(100 * by_epoch[max(by_epoch, key=int)] for by_epoch in found)
    return Picked(len(found), last, spread(100 * max(by_epoch.values()) for by_epoch in found))
