"""The claim of the paper's abstract: DenseNet-121 on CIFAR-100, pruned by OT and fine-tuned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

from otprune.experiments import paper
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import sweep
from otprune.report.benchmarks import benchmark
from otprune.report.chance import leans
from otprune.report.points import subject
from otprune.report.verdicts import ROUNDING, Claim, by_chance

FILE = "dead_layers.json"
COSTS = ("flops", "parameters")


@dataclass(frozen=True)
class Candidate:
    """A network that may be the one: its accuracy in percent, what it costs, and what was done with it since."""

    accuracy: float
    cost: Mapping[str, float]
    since: str = ""

    def __str__(self) -> str:
        return f"{reached(self.accuracy, self.cost)}{self.since}"


def headline(records: Records) -> Claim:
    """A network that costs no more and is as accurate; chance may explain a little more, or a little less.

    >>> from pathlib import Path
    >>> headline(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    asked = paper.table("points")["headline"]
    where = subject(asked["data"], asked["model"])
    name = f"the headline: OT reaches {asked['accuracy']:g} % with {asked['flops'] / 1e6:.0f}M FLOPs"
    text = f"{where}: {reached(asked['accuracy'], asked)}, by OT, fine-tuned."
    found = [*_finetuned(records), *_without_dead_layers(records)]
    small = [one for one in found if all(one.cost[kind] <= ROUNDING * asked[kind] for kind in COSTS)]
    if not small:
        least = min(found, key=lambda one: one.cost["flops"], default=None)
        missing = "" if least is None else f"no network as small is recorded; the smallest: {least}"
        return Claim(name, text, {where: None} if found else {}, missing, "accuracy-vs-cost", (where,))
    best = max(small, key=lambda one: one.accuracy)
    over = best.accuracy - asked["accuracy"]
    judged = leans([over])
    beside = f": {over:+.2f} points{by_chance([over])}"
    return Claim(name, text, {where: judged}, f"{best}{beside}", "accuracy-vs-cost", (where,))


def reached(accuracy: float, cost: Mapping[str, float]) -> str:
    """What a network has come to.

    >>> reached(75.99, {"flops": 1.46e8, "parameters": 7.4e5})
    '75.99 % with 146M FLOPs and 0.74M parameters'
    """
    flops, parameters = cost["flops"] / 1e6, cost["parameters"] / 1e6
    return f"{accuracy:.2f} % with {flops:.0f}M FLOPs and {parameters:.2f}M parameters"


def _finetuned(records: Records) -> Iterator[Candidate]:
    asked = paper.table("points")["headline"]
    for needed in sweep(asked["data"], asked["model"]):
        record = records.find(needed)
        if record is not None and "accuracy_finetuned" in record.results:
            yield Candidate(100 * record.results["accuracy_finetuned"], record.results["cost_after"])


def _without_dead_layers(records: Records) -> Iterator[Candidate]:
    """The one that was pruned before OT took out dead layers: what it is once they are."""
    found = benchmark(records.folder / FILE, _DeadLayers, "dead layers")
    if found is not None:
        without = found["results"]["without"]
        yield Candidate(100 * without["accuracy_finetuned"], without, ", its dead layers taken out since")


class _Network(TypedDict):
    accuracy_finetuned: float
    flops: int
    parameters: int


class _Networks(TypedDict):
    without: _Network


class _DeadLayers(TypedDict):
    results: _Networks
