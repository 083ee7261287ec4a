"""The columns of the statistics table: what VGG-14 is pruned to over the seeds that are recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

from otprune.experiments import paper
from otprune.experiments.paper import Pruned
from otprune.experiments.reproduce.needed import Needed, lam_text
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds, slimming
from otprune.report.points import spread

RULES, MODEL = ("ot", "ns"), paper.table("statistics")["model"]
ELSEWHERE = f"NS at λ={lam_text(paper.slimming_lam(MODEL))}"
ALIKE = 0.005  # ratios that differ by no more keep nearly the same channels


@dataclass(frozen=True)
class Column:
    """What some seeds come to; costs are absolute, accuracies in percent, as the paper's.

    Channels and costs are of all `seeds`, the accuracy of those that are `finetuned`.
    """

    seeds: int
    finetuned: int
    pruned: Pruned


def column(records: Records, data: str, rule: str) -> Column | None:
    """The column of some data and rule, if there is a seed of it.

    >>> from pathlib import Path
    >>> column(Records(Path("nowhere")), "cifar10", "ot")
    """
    return _over(records, seeds(data, rule))


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
    there = [record.results for needed in needs if (record := records.find(needed))]
    found = [results for results in there if "layers" in results]
    accuracies = [100 * results["accuracy_finetuned"] for results in found if "accuracy_finetuned" in results]
    if not accuracies:
        return None
    kept = [[layer["kept"] for layer in results["layers"]] for results in found]
    measured = Pruned(
        layers=tuple(spread(layer) for layer in zip(*kept, strict=True)),
        total=spread(map(sum, kept)),
        flops=spread(results["cost_after"]["flops"] for results in found),
        parameters=spread(results["cost_after"]["parameters"] for results in found),
        accuracy=spread(accuracies),
    )
    return Column(len(found), len(accuracies), measured)
