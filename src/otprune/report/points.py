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
CLASSES = {"digits": 10, "cifar10": 10, "cifar100": 100}
ACCURACIES = (
    *("sparse", "pruned", "folded", "recalibrated"),
    *("finetuned_1", "finetuned_3", "finetuned", "scratch"),
)


@dataclass(frozen=True)
class Point:
    """A pruned network, over the seeds that there are; costs are the shares that went, in percent, as accuracies.

    Not every seed has been through every stage. What is told of a stage is told of those that have, cost and all, and a
    gain from one stage to another is that of the same seeds.

    >>> shares = {"flops": 40.0, "parameters": 60.0}
    >>> point = Point("λ=1e-4", ({**shares, "pruned": 80.0}, {**shares, "pruned": 70.0, "finetuned": 90.0}))
    >>> point.seeds("finetuned"), point.accuracy("pruned").mean, point.gain("finetuned", "pruned")
    (1, 75.0, 20.0)
    """

    label: str
    runs: tuple[Mapping[str, float], ...]

    def seeds(self, *stages: str) -> int:
        """How many have been through all of these stages."""
        return len(self._through(*stages))

    def cost(self, kind: str, *stages: str) -> Spread:
        """The share of the FLOPs or parameters that went, of those that have been through all of these stages."""
        return spread(run[kind] for run in self._through(*stages))

    @property
    def emptied(self) -> float:
        """How many layers would have gone as a whole, had not one channel of each been kept; the most of any seed."""
        return max(run.get("emptied", 0) for run in self.runs)

    def branches(self, *stages: str) -> float | None:
        """How many branches went as a whole, on average of those through these stages; nothing where no record says."""
        found = [run["branches"] for run in self._through("branches", *stages)]
        return statistics.fmean(found) if found else None

    def accuracy(self, stage: str) -> Spread:
        """That after a stage."""
        return spread(run[stage] for run in self._through(stage))

    def gain(self, later: str, earlier: str) -> float:
        """How many points of accuracy it gains from one stage to another, on average."""
        return statistics.fmean(self.gains(later, earlier))

    def gains(self, later: str, earlier: str) -> list[float]:
        """The same seed by seed."""
        return [run[later] - run[earlier] for run in self._through(later, earlier)]

    def _through(self, *stages: str) -> list[Mapping[str, float]]:
        return [run for run in self.runs if all(stage in run for stage in stages)]


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


VGG = subject("cifar10", "vgg14")


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
    return sorted(made, key=lambda point: point.cost("flops").mean)


def finetuned(records: Records, needs: Sequence[Needed]) -> list[Point]:
    """Those of the points that have been fine-tuned, by the share of their parameters that went.

    >>> from pathlib import Path
    >>> finetuned(Records(Path("nowhere")), [])
    []
    """
    found = [point for point in points(records, needs) if point.seeds("finetuned")]
    return sorted(found, key=lambda point: point.cost("parameters", "finetuned").mean)


def told_seeds(found: Sequence[Point], stages: Iterable[str]) -> str:
    """A sentence on how many seeds points are means of, after each of some stages; nothing where each is of one.

    >>> shares = {"flops": 40.0, "parameters": 60.0}
    >>> one, other = {**shares, "pruned": 80.0}, {**shares, "pruned": 70.0}
    >>> told_seeds([Point("λ=1e-4", (one,)), Point("λ=2e-4", (one, other))], ["pruned"])
    'Each point is the mean over its seeds, 1 to 2 of them; bars are their standard deviation.'
    """
    counts = {count for point in found for stage in stages if (count := point.seeds(stage))}
    if max(counts, default=1) == 1:
        return ""
    many = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    return f"Each point is the mean over its seeds, {many} of them; bars are their standard deviation."


def pruned_share(results: Mapping[str, Any], kind: str) -> float:
    """How much of a cost went, in percent.

    >>> pruned_share({"cost_before": {"flops": 4}, "cost_after": {"flops": 1}}, "flops")
    75.0
    """
    share: float = 100 * (1 - results["cost_after"][kind] / results["cost_before"][kind])
    return share


def emptied_layers(results: Mapping[str, Any]) -> int:
    """How many layers would have gone as a whole, had not one channel of each been kept.

    >>> emptied_layers({"layers": [{"channels": 64, "negligible": 64, "kept": 1}]})
    1
    """
    return sum(map(_is_emptied, results.get("layers", ())))


def removed_branches(results: Mapping[str, Any]) -> int:
    """How many branches went as a whole: the modules that went are parts of so many blocks.

    >>> removed_branches({"removed": ["blocks.5.conv1", "blocks.5.bn1", "blocks.4.conv1", "blocks.4.bn1"]})
    2
    """
    return len({name.rpartition(".")[0] for name in results["removed"]})


def _point(needed: Needed, group: Sequence[Record]) -> Point:
    pruning, lam = needed.experiment.pruning, needed.experiment.training.lam
    label = f"{'ρ' if needed.kind is Kind.ISTA else 'λ'}={lam_text(lam)}"
    if pruning.rule == "ns":
        label = f"{100 * pruning.ratio:g} %"
    return Point(label, tuple(_run(record.results) for record in group))


def _is_emptied(layer: Mapping[str, Any]) -> bool:
    """Whether all of it was to go, and one channel was kept. Tied to other layers, it may have kept more than that."""
    return bool(layer["kept"] == 1 and layer.get("negligible") == layer["channels"])


def _run(results: Mapping[str, Any]) -> dict[str, float]:
    shares = {kind: pruned_share(results, kind) for kind in ("flops", "parameters")}
    shares["emptied"] = emptied_layers(results)
    if "removed" in results:
        shares["branches"] = removed_branches(results)
    measured = (stage for stage in ACCURACIES if f"accuracy_{stage}" in results)
    return shares | {stage: 100 * results[f"accuracy_{stage}"] for stage in measured}
