"""The columns of the statistics table: what VGG-14 is pruned to over the seeds that are recorded."""

from dataclasses import dataclass

from otprune.experiments.paper import Pruned
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.points import spread

RULES = ("ot", "ns")


@dataclass(frozen=True)
class Column:
    """So many seeds, and what they come to; costs are absolute, accuracies in percent, as the paper's."""

    seeds: int
    pruned: Pruned


def column(records: Records, data: str, rule: str) -> Column | None:
    """The column of some data and rule, if there is a seed of it.

    >>> from pathlib import Path
    >>> column(Records(Path("nowhere")), "cifar10", "ot")
    """
    done = [needed for needed in seeds(data, rule) if not records.lacks(needed)]
    found = [record.results for needed in done if (record := records.find(needed))]
    if not found:
        return None
    kept = [[layer["kept"] for layer in results["layers"]] for results in found]
    measured = Pruned(
        layers=tuple(spread(layer) for layer in zip(*kept, strict=True)),
        total=spread(map(sum, kept)),
        flops=spread(results["cost_after"]["flops"] for results in found),
        parameters=spread(results["cost_after"]["parameters"] for results in found),
        accuracy=spread(100 * results["accuracy_finetuned"] for results in found),
    )
    return Column(len(found), measured)
