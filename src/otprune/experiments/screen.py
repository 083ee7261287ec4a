"""What a run shows: a bar for each training with loss, accuracy, speed and time left; a table at the end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from otprune.experiments import cells
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.experiments.standing import Standing, Watch
from otprune.training.run import EpochRecord, Run

BAR_EVERY_SECONDS = 1.0  # no more often, since a look inside an epoch waits for the device
LINE_EVERY_SECONDS = 60.0
LINE_EVERY_EPOCHS = 10

# Stages whose names take two lines.
BROKEN = {"recalibrated": "recali-\nbrated", "finetuned": "fine-\ntuned", "scratch": "from\nscratch"}
HELD_OUT = "held out"
LATENCY = "latency, ms"


@contextmanager
def progress(console: Console) -> Iterator[Report]:
    """Bars on a terminal; elsewhere a line every ten epochs, and one a minute where epochs take long.

    >>> from otprune.experiments import stages
    >>> with progress(Console()) as report:
    ...     stages.train([], report)
    """
    text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    with Progress(BarColumn(12), text, console=console, disable=not console.is_terminal) as bars:
        yield _Screen(console, bars)


def results_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Accuracy after every stage that was measured, and what was gained, for records of runs, of several networks too.

    Beside the accuracy on test images, that on held-out ones, where there are any: unpruned and pruned. What a network
    takes is shown where it was pruned to a latency.

    >>> training = {"lam": 1e-4, "target_flops": None, "seed": 0}
    >>> record = {"experiment": {"training": training}, "results": {"accuracy_sparse": 0.9365}}
    >>> [column.header for column in results_table([record]).columns]
    ['λ', 'seed', 'sparse']
    """
    asked = [record["experiment"] for record in records]
    several = len({one.get("model") for one in asked}) > 1
    return measured_table([_labels(one, several) for one in asked], [record["results"] for record in records])


def measured_table(labels: Sequence[Mapping[str, str]], results: Sequence[Mapping[str, Any]]) -> Table:
    """The same for anything with results, each row under labels of its own.

    >>> [column.header for column in measured_table([{"round": "1"}], [{"accuracy_scratch": 0.93}]).columns]
    ['round', 'from\\nscratch']
    """
    accuracies = [stage for stage in cells.STAGES if any(f"accuracy_{stage}" in found for found in results)]
    held_out = [HELD_OUT] if any(_held_out(found) for found in results) else []
    costs = [kind for kind in cells.COSTS if any("cost_after" in found for found in results)]
    latency = [LATENCY] if any(map(cells.latency, results)) else []
    headers = [*map(broken, accuracies), *held_out, *(cells.COSTS[kind] for kind in costs), *latency]
    table = Table(*(labels[0] if labels else ()), *headers)
    for label, found in zip(labels, results, strict=True):
        numbers = [cells.percent(found.get(f"accuracy_{stage}")) for stage in accuracies]
        names = map(Text, label.values())  # in which nothing is markup
        gains = (*_gains(found, costs), *(cells.latency(found) for _ in latency))
        table.add_row(*names, *numbers, *(_held_out(found) for _ in held_out), *gains)
    return table


def broken(stage: str) -> str:
    """The name of a stage, in two lines where it is long.

    >>> broken("finetuned"), broken("sparse")
    ('fine-\\ntuned', 'sparse')
    """
    return BROKEN.get(stage, stage)


@dataclass
class _Shown:
    """A training on the screen, and when something was last shown of it."""

    name: str
    task: TaskID
    at: float = field(default_factory=time.monotonic)


class _Screen:
    def __init__(self, console: Console, bars: Progress) -> None:
        self._console, self._bars = console, bars
        self._every = BAR_EVERY_SECONDS if console.is_terminal else LINE_EVERY_SECONDS
        self._all: dict[tuple[str, str], _Shown] = {}
        self._watch = Watch()

    def moved(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """Look how far the epoch is, if the last look was long enough ago."""
        shown = self._shown(pipeline, stage, run)
        if time.monotonic() - shown.at >= self._every:
            self._show(shown, run, self._watch.inside(pipeline, stage, run))

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """Move the bar, or print a line; at the end a line takes the bar's place."""
        shown = self._shown(pipeline, stage, run)
        late = time.monotonic() - shown.at >= self._every
        if self._console.is_terminal or run.done or epoch.epoch % LINE_EVERY_EPOCHS == 0 or late:
            self._show(shown, run, self._watch.after(pipeline, stage, run, epoch))
        if run.done:
            self._bars.remove_task(shown.task)
            del self._all[str(pipeline.folder), stage]

    def pruned(self, pipeline: Pipeline) -> None:
        """Print what is left, and what did not come out as asked: there may be a long fine-tuning to come."""
        for line in pruning_lines(pipeline):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _shown(self, pipeline: Pipeline, stage: str, run: Run) -> _Shown:
        key = (str(pipeline.folder), stage)
        if key not in self._all:
            name = f"{stage} {pipeline.folder.name}"
            self._all[key] = _Shown(name, self._bars.add_task(name, total=run.training.epochs))
            self._watch.begin(pipeline, stage, run)
        return self._all[key]

    def _show(self, shown: _Shown, run: Run, standing: Standing) -> None:
        shown.at, line = time.monotonic(), f"{shown.name}: {standing}"
        self._bars.update(shown.task, completed=standing.epoch, description=line)
        if run.done or not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def pruning_lines(pipeline: Pipeline, called: str = "") -> Iterator[str]:
    """What a pruned run says: what is left, what it cost in accuracy, and what did not come out as asked.

    It is `called` as its folder is, unless something else is said.

    >>> from pathlib import Path
    >>> from types import SimpleNamespace as Pruned
    >>> costs = {"cost_before": {"flops": 4e9, "parameters": 2e7}, "cost_after": {"flops": 1e9, "parameters": 5e6}}
    >>> found = costs | {"accuracy_sparse": 0.9365, "accuracy_recalibrated": 0.936, "remarks": ["nothing is left of x"]}
    >>> for line in pruning_lines(Pruned(folder=Path("runs/seed0"), results=found)):
    ...     print(line)
    prune seed0: 4.00G → 1.00G (25.0%) FLOPs, 20.0M → 5.00M (25.0%) parameters; accuracy 93.65% → 93.60% recalibrated
    prune seed0: nothing is left of x
    """
    found = pipeline.results
    costs = ", ".join(
        f"{gain} {kind}" for gain, kind in zip(_gains(found, list(cells.COSTS)), cells.COSTS.values(), strict=True)
    )
    if took := cells.latency(found):
        costs += f", {took} ms"
    kept = " → ".join(cells.percent(found[f"accuracy_{stage}"]) for stage in ("sparse", "recalibrated"))
    for said in (f"{costs}; accuracy {kept} recalibrated", *found["remarks"]):
        yield f"prune {called or pipeline.folder.name}: {said}"


def _labels(experiment: Mapping[str, Any], several_networks: bool) -> dict[str, str]:
    training = experiment["training"]
    network = {"network": experiment["model"]} if several_networks else {}
    return network | {"λ": cells.lam(training), "seed": str(training["seed"])}


def _gains(found: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    for kind in kinds:
        yield cells.gain(cells.cost_of_trained(found)[kind], found["cost_after"][kind]) if "cost_after" in found else ""


def _held_out(found: Mapping[str, Any]) -> str:
    """Unpruned and pruned, as far as there is."""
    names = ("accuracy_held_out_sparse", "accuracy_held_out_recalibrated")
    measured = [f"{100 * found[name]:.2f}" for name in names if name in found]
    return f"{' → '.join(measured)}%" if measured else ""
