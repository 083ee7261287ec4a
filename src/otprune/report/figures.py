"""The figures by name: each tells which of its files can be drawn from the records that there are."""

from collections.abc import Callable, Iterator
from pathlib import Path

from otprune.experiments.reproduce.records import Records
from otprune.report.comparisons import iterative, resnet20, statistics
from otprune.report.costs import accuracy_vs_cost, without_training
from otprune.report.distributions import lambda_distributions, layer_distributions, threshold_demo
from otprune.report.edge import edge_latency
from otprune.report.scoreboard import NAME as SCOREBOARD
from otprune.report.scoreboard import scoreboard
from otprune.report.slimming_limit import slimming_limit
from otprune.report.style import Sketch, write

FIGURES: dict[str, Callable[[Records], Iterator[Sketch]]] = {
    SCOREBOARD: scoreboard,
    "threshold-demo": threshold_demo,
    "layer-distributions": layer_distributions,
    "lambda-distributions": lambda_distributions,
    "accuracy-vs-cost": accuracy_vs_cost,
    "without-training": without_training,
    "statistics": statistics,
    "one-training": slimming_limit,
    "resnet20": resnet20,
    "iterative": iterative,
    "edge-latency": edge_latency,
}


def draw(name: str, records: Records, folder: Path) -> list[Path]:
    """Draw what can be drawn of a figure into a folder, as SVG and PNG; return the files.

    >>> draw("iterative", Records(Path("nowhere")), Path("docs"))
    []
    """
    return [path for sketch in FIGURES[name](records) for path in write(sketch, folder)]
