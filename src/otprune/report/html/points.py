"""What is told of a run in numbers: before and after, and the paper's own networks beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from otprune.experiments import paper
from otprune.experiments.cells import cost_of_trained
from otprune.report.html.subjects import Subject

# From the last stage to the first: what a run is judged by is the last that it went through.
STAGES = {
    "finetuned": "fine-tuned",
    "recalibrated": "recalibrated, not trained",
    "folded": "constants folded, not trained",
    "pruned": "as pruned, not trained",
}

UNPRUNED, PRUNED_BEFORE = "unpruned", "as earlier rounds left it"


@dataclass(frozen=True)
class PaperPoint:
    """A network that the paper reports: accuracy in percent, absolute costs where it gives them."""

    label: str
    accuracy: float
    flops: float | None
    parameters: float | None


def last_stage(results: Mapping[str, Any]) -> str | None:
    """The last stage after pruning whose accuracy was measured.

    >>> last_stage({"accuracy_sparse": 0.9, "accuracy_pruned": 0.1, "accuracy_recalibrated": 0.9})
    'recalibrated'
    """
    return next((stage for stage in STAGES if f"accuracy_{stage}" in results), None)


def which_before(results: Mapping[str, Any]) -> str:
    """Which network is the one before a pruning: the unpruned one, unless the run is a later one of several rounds.

    >>> which_before({}), which_before({"cost_sparse": {"flops": 2, "parameters": 1}})
    ('unpruned', 'as earlier rounds left it')
    """
    return PRUNED_BEFORE if "cost_sparse" in results else UNPRUNED


def before_and_after(subject: Subject) -> dict[str, Any]:
    """Accuracy and costs of the run's network before and after, and which these are; what is not there is None.

    >>> from pathlib import Path
    >>> from otprune.experiments.experiment import Experiment
    >>> run = Subject("run", Path("run"), Experiment("vgg14", "cifar10"), {"accuracy_sparse": 0.9})
    >>> before_and_after(run)["accuracy"]
    [0.9, None]
    """
    results, stage = subject.results, last_stage(subject.results)
    before, after = cost_of_trained(results), results.get("cost_after", {})
    return {
        "before": which_before(results),
        "stage": None if stage is None else STAGES[stage],
        "accuracy": [results.get("accuracy_sparse"), None if stage is None else results[f"accuracy_{stage}"]],
        "flops": [before.get("flops"), after.get("flops")],
        "parameters": [before.get("parameters"), after.get("parameters")],
    }


def papers(data: str, model: str) -> list[dict[str, Any]]:
    """The paper's networks of that kind, with the unpruned one first; none where it has none.

    >>> [(point["label"], point["accuracy"]) for point in papers("cifar10", "vgg14")]
    [('unpruned', 93.59), ('OT', 93.52), ('NS', 93.39)]
    """
    return [asdict(point) for point in _found(data, model)]


def _found(data: str, model: str) -> Iterator[PaperPoint]:
    unpruned = paper.baselines().get((data, model))
    if unpruned is not None:
        yield PaperPoint(UNPRUNED, unpruned.accuracy, unpruned.flops, unpruned.parameters)
    statistics, headline = paper.table("statistics"), paper.table("points")["headline"]
    if statistics["model"] == model and data in statistics:
        for rule in ("ot", "ns"):
            mean = paper.statistics(data, rule)
            yield PaperPoint(rule.upper(), mean.accuracy.mean, mean.flops.mean, mean.parameters.mean)
    if (headline["data"], headline["model"]) == (data, model):
        yield PaperPoint("OT", headline["accuracy"], headline["flops"], headline["parameters"])
