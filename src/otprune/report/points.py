"""Pruned networks as points: what share of the cost is gone, how accurate they are, mean and spread over seeds."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import Kind, Needed, lam_text
from otprune.experiments.reproduce.records import Record, Records

MODEL_NAMES = {
    "vgg14": "VGG-14",
    "resnet20": "ResNet-20",
    "resnet50": "ResNet-50",
    "densenet121": "DenseNet-121",
    "vgg16_bn": "VGG-16-BN",
    "preresnet50": "PreResNet-50",
}
DATA_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
ACCURACIES = ("sparse", "pruned", "recalibrated", "finetuned_1", "finetuned", "scratch")


@dataclass(frozen=True)
class Point:
    """A pruned network, over the seeds that there are; costs are the shares that went, in percent, as accuracies."""

    label: str
    seeds: int
    flops: Spread
    parameters: Spread
    accuracy: Mapping[str, Spread]


def spread(values: Iterable[float]) -> Spread:
    """The mean and the standard deviation of the values themselves, as the paper's table has them; one has none.

    >>> spread([1.0, 3.0]), spread([1.0])
    (Spread(mean=2.0, std=1.0), Spread(mean=1.0, std=nan))
    """
    found = list(values)
    return Spread(statistics.fmean(found), statistics.pstdev(found) if len(found) > 1 else math.nan)


def subject(data: str, model: str) -> str:
    """A network and its data as the paper writes them.

    >>> subject("cifar10", "vgg14")
    'VGG-14 on CIFAR-10'
    """
    return f"{MODEL_NAMES.get(model, model)} on {DATA_NAMES.get(data, data)}"


def counted(number: int, what: str) -> str:
    """A number and a noun.

    >>> counted(1, "seed"), counted(11, "seed")
    ('1 seed', '11 seeds')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def points(records: Records, needs: Sequence[Needed]) -> list[Point]:
    """A point for each experiment that there are records of, of all their seeds, the most costly network first.

    >>> from pathlib import Path
    >>> points(Records(Path("nowhere")), [])
    []
    """
    found = [[record for record in records.of_any_seed(needed) if record.results] for needed in needs]
    made = [_point(needed, group) for needed, group in zip(needs, found, strict=True) if group]
    return sorted(made, key=lambda point: point.flops.mean)


def finetuned(records: Records, needs: Sequence[Needed]) -> list[Point]:
    """Those of the points that have been fine-tuned, by the share of their parameters that went.

    >>> from pathlib import Path
    >>> finetuned(Records(Path("nowhere")), [])
    []
    """
    found = [point for point in points(records, needs) if "finetuned" in point.accuracy]
    return sorted(found, key=lambda point: point.parameters.mean)


def pruned_share(results: Mapping[str, Any], kind: str) -> float:
    """How much of a cost went, in percent.

    >>> pruned_share({"cost_before": {"flops": 4}, "cost_after": {"flops": 1}}, "flops")
    75.0
    """
    share: float = 100 * (1 - results["cost_after"][kind] / results["cost_before"][kind])
    return share


def _point(needed: Needed, group: Sequence[Record]) -> Point:
    results = [record.results for record in group]
    pruning, lam = needed.experiment.pruning, needed.experiment.training.lam
    label = f"{'ρ' if needed.kind is Kind.ISTA else 'λ'}={lam_text(lam)}"
    if pruning.rule == "ns":
        label = f"{100 * pruning.ratio:g} %"
    shares = [spread(pruned_share(found, kind) for found in results) for kind in ("flops", "parameters")]
    return Point(label, len(group), shares[0], shares[1], _accuracies(results))


def _accuracies(results: Sequence[Mapping[str, Any]]) -> dict[str, Spread]:
    """Over the seeds that have been measured so far; nothing for stages that none has been through."""
    measured = {stage: [r[f"accuracy_{stage}"] for r in results if f"accuracy_{stage}" in r] for stage in ACCURACIES}
    return {stage: spread(100 * value for value in values) for stage, values in measured.items() if values}
