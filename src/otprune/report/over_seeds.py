"""The tables of the statistics: the paper's columns and ours over the seeds, and our seeds one by one."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from statistics import correlation
from typing import Any

from otprune.experiments import paper
from otprune.experiments.paper import Pruned
from otprune.experiments.reproduce.needed import lam_text
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.columns import MODEL, RULES, Column, column, slimming_as_elsewhere
from otprune.report.markdown import NONE, WHO, compared, markdown_table, percent
from otprune.report.points import DATA_NAMES, counted

ENOUGH = 3  # seeds: through two points there is always a line


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
            headed = f"NS at λ={lam_text(paper.slimming_lam(MODEL))}"
            columns += list(_statistics_columns(headed, paper.statistics(data, "ns"), elsewhere))[1:]
        layers = [f"layer {number}" for number in range(1, len(paper.table("statistics")["channels"]) + 1)]
        labels = [name, *layers, "total", "FLOPs (M)", "params (M)", "accuracy (%)"]
        header, *lines = zip(labels, *columns, strict=True)
        yield markdown_table(header, lines)
        yield from seed_by_seed(records, data)


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


def seed_by_seed(records: Records, data: str) -> Iterator[str]:
    """How each seed of OT began and what became of it, and whether the one goes with the other.

    >>> from pathlib import Path
    >>> list(seed_by_seed(Records(Path("nowhere")), "cifar10"))
    []
    """
    done = [needed for needed in seeds(data, "ot") if not records.lacks(needed)]
    there = [record for needed in done if (record := records.find(needed)) and _tells_how_it_began(record.results)]
    found = {record.experiment.training.seed: record.results for record in there}
    if len(found) < ENOUGH:
        return
    yield markdown_table(
        (f"{DATA_NAMES[data]}, OT", "loss of the first epoch", "channels", "FLOPs (M)", "unpruned", "fine-tuned"),
        [(f"seed {seed}", *_became(results)) for seed, results in found.items()],
    )
    began = [_first_loss(results) for results in found.values()]
    channels = _correlation(began, [_channels(results) for results in found.values()])
    accuracy = _correlation(began, [results["accuracy_sparse"] for results in found.values()])
    yield (
        f"Over these {counted(len(found), 'seed')} the loss of the first epoch correlates with the channels left by "
        f"{channels} and with the accuracy before pruning by {accuracy}."
    )


def _tells_how_it_began(results: Mapping[str, Any]) -> bool:
    first = (results.get("training") or [{}])[0].get("loss")
    return first is not None and isfinite(first) and results.get("accuracy_sparse") is not None


def _channels(results: Mapping[str, Any]) -> int:
    return sum(layer["kept"] for layer in results["layers"])


def _became(results: Mapping[str, Any]) -> tuple[str, ...]:
    accuracies = (percent(100 * results[f"accuracy_{stage}"]) for stage in ("sparse", "finetuned"))
    costs = str(_channels(results)), f"{results['cost_after']['flops'] / 1e6:.2f}"
    return f"{_first_loss(results):.3f}", *costs, *accuracies


def _correlation(ones: Sequence[float], others: Sequence[float]) -> str:
    """Undefined where either never changes."""
    return NONE if len(set(ones)) == 1 or len(set(others)) == 1 else f"{correlation(ones, others):+.2f}"


def _first_loss(results: Mapping[str, Any]) -> float:
    loss: float = results["training"][0]["loss"]
    return loss
