"""The tables of the statistics: the paper's columns and ours over the seeds, and what stands below them."""

from collections.abc import Iterator

from otprune.experiments import paper
from otprune.experiments.paper import Pruned
from otprune.experiments.reproduce.records import Records
from otprune.report.columns import ELSEWHERE, RULES, Column, column, slimming_as_elsewhere
from otprune.report.markdown import WHO, compared, markdown_table
from otprune.report.picking import picking
from otprune.report.points import DATA_NAMES, counted
from otprune.report.seed_by_seed import seed_by_seed


def statistics(records: Records) -> Iterator[str]:
    """Channels of every layer, FLOPs, parameters and accuracy over the seeds, for each data set.

    >>> from pathlib import Path
    >>> len(next(statistics(Records(Path("nowhere")))).splitlines()) - 2
    17
    """
    for data, name in DATA_NAMES.items():
        columns = [
            one
            for rule in RULES
            for one in _statistics_columns(rule.upper(), paper.statistics(data, rule), column(records, data, rule))
        ]
        if (elsewhere := slimming_as_elsewhere(records, data)) is not None:
            columns += list(_statistics_columns(ELSEWHERE, paper.statistics(data, "ns"), elsewhere))[1:]
        layers = [f"layer {number}" for number in range(1, len(paper.table("statistics")["channels"]) + 1)]
        labels = [name, *layers, "total", "FLOPs (M)", "params (M)", "accuracy (%)"]
        header, *lines = zip(labels, *columns, strict=True)
        yield markdown_table(header, lines)
        yield from seed_by_seed(records, data)
    yield from picking(records)


def _statistics_columns(name: str, theirs: Pruned, ours: Column | None) -> Iterator[tuple[str, ...]]:
    """Theirs, ours and the difference, each with its heading."""
    number = counted(ours.seeds if ours else 0, "seed")
    if ours and ours.finetuned < ours.seeds:
        number += f", {ours.finetuned} fine-tuned"
    header = [f"{name}, {who}" + (f" ({number})" if who == "here" else "") for who in WHO]
    return zip(header, *_statistics_cells(theirs, ours.pruned if ours else None), strict=True)


def _statistics_cells(theirs: Pruned, ours: Pruned | None) -> list[tuple[str, str, str]]:
    layers = ours.layers if ours else [None] * len(theirs.layers)
    cells = [compared(*both) for both in zip(theirs.layers, layers, strict=True)]
    for name, unit in (("total", 1), ("flops", 1e6), ("parameters", 1e6), ("accuracy", 1)):
        cells.append(compared(getattr(theirs, name), getattr(ours, name) if ours else None, unit=unit))
    return cells
