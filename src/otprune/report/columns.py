"""The columns of the statistics table: what VGG-14 is pruned to over the seeds that are recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

from otprune.experiments import paper
from otprune.experiments.paper import Pruned
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds, slimming
from otprune.report.points import spread

RULES, MODEL = ("ot", "ns"), paper.table("statistics")["model"]
ALIKE = 0.005  # ratios that differ by no more keep nearly the same channels


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
    return _over(records, seeds(data, rule))


def of_the_same_seeds(records: Records, data: str) -> tuple[Column | None, Column | None]:
    """The columns of OT and of Network Slimming over the seeds that are recorded of both.

    >>> from pathlib import Path
    >>> of_the_same_seeds(Records(Path("nowhere")), "cifar10")
    (None, None)
    """
    pairs = zip(seeds(data, "ot"), seeds(data, "ns"), strict=True)
    both = [pair for pair in pairs if not any(map(records.lacks, pair))]
    return _over(records, [ours for ours, _ in both]), _over(records, [theirs for _, theirs in both])


def slimming_as_elsewhere(records: Records, data: str) -> Column | None:
    """Network Slimming pruned as in the table, but trained with the λ that it has in the rest of the paper.

    >>> from pathlib import Path
    >>> slimming_as_elsewhere(Records(Path("nowhere")), "cifar10")
    """
    ratio = _ratio(seeds(data, "ns")[0])
    return _over(records, (one for one in slimming(data, MODEL) if abs(_ratio(one) - ratio) <= ALIKE))


def _ratio(needed: Needed) -> float:
    return needed.experiment.pruning.ratio


def _over(records: Records, needs: Iterable[Needed]) -> Column | None:
    done = [needed for needed in needs if not records.lacks(needed)]
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
