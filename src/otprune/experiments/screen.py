"""What a run shows: a bar for each training with loss, accuracy, speed and time left; a table at the end."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from otprune.experiments import cells
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.training.run import EpochRecord, Run

BAR_EVERY_SECONDS = 1.0  # no more often, since a look inside an epoch waits for the device
LINE_EVERY_SECONDS = 60.0
LINE_EVERY_EPOCHS = 10
PACE_OVER_SECONDS = 30.0

# Stages whose names take two lines.
BROKEN = {"recalibrated": "recali-\nbrated", "finetuned": "fine-\ntuned", "scratch": "from\nscratch"}
HELD_OUT = "held out"


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
    """Accuracy after every stage that was measured, and what was gained, for records of runs.

    Beside the accuracy on test images, that on held-out ones, where there are any: unpruned and pruned.

    >>> training = {"lam": 1e-4, "target_flops": None, "seed": 0}
    >>> record = {"experiment": {"training": training}, "results": {"accuracy_sparse": 0.9365}}
    >>> [column.header for column in results_table([record]).columns]
    ['λ', 'seed', 'sparse']
    """
    trainings = [record["experiment"]["training"] for record in records]
    labels = [{"λ": cells.lam(training), "seed": str(training["seed"])} for training in trainings]
    return measured_table(labels, [record["results"] for record in records])


def measured_table(labels: Sequence[Mapping[str, str]], results: Sequence[Mapping[str, Any]]) -> Table:
    """The same for anything with results, each row under labels of its own.

    >>> [column.header for column in measured_table([{"round": "1"}], [{"accuracy_scratch": 0.93}]).columns]
    ['round', 'from\\nscratch']
    """
    accuracies = [stage for stage in cells.STAGES if any(f"accuracy_{stage}" in found for found in results)]
    held_out = [HELD_OUT] if any(_held_out(found) for found in results) else []
    costs = [kind for kind in cells.COSTS if any("cost_after" in found for found in results)]
    headers = [*map(broken, accuracies), *held_out, *(cells.COSTS[kind] for kind in costs)]
    table = Table(*(labels[0] if labels else ()), *headers)
    for label, found in zip(labels, results, strict=True):
        numbers = [cells.percent(found.get(f"accuracy_{stage}")) for stage in accuracies]
        table.add_row(*label.values(), *numbers, *(_held_out(found) for _ in held_out), *_gains(found, costs))
    return table


def broken(stage: str) -> str:
    """The name of a stage, in two lines where it is long.

    >>> broken("finetuned"), broken("sparse")
    ('fine-\\ntuned', 'sparse')
    """
    return BROKEN.get(stage, stage)


class _Pace:
    """Images a second, over the last half minute."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, images: int) -> None:
        """So many images are done by now."""
        now = time.monotonic()
        self._marks.append((now, images))
        while len(self._marks) > 2 and self._marks[1][0] < now - PACE_OVER_SECONDS:
            self._marks.popleft()

    @property
    def speed(self) -> float:
        """Zero as long as it is not known."""
        (began, before), (now, images) = self._marks[0], self._marks[-1]
        return (images - before) / max(now - began, 1e-9)


@dataclass
class _Shown:
    """A training on the screen, and when something was last shown of it."""

    name: str
    task: TaskID
    pace: _Pace = field(default_factory=_Pace)
    at: float = field(default_factory=time.monotonic)


class _Screen:
    def __init__(self, console: Console, bars: Progress) -> None:
        self._console, self._bars = console, bars
        self._every = BAR_EVERY_SECONDS if console.is_terminal else LINE_EVERY_SECONDS
        self._all: dict[tuple[str, str], _Shown] = {}

    def moved(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """Look how far the epoch is, if the last look was long enough ago."""
        shown = self._shown(pipeline, stage, run)
        if time.monotonic() - shown.at < self._every:
            return
        so_far = run.so_far()
        self._show(shown, run, run.epoch + run.position / run.steps, so_far.loss, so_far.accuracy)

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """Move the bar, or print a line; at the end a line takes the bar's place."""
        shown = self._shown(pipeline, stage, run)
        late = time.monotonic() - shown.at >= self._every
        if self._console.is_terminal or run.done or epoch.epoch % LINE_EVERY_EPOCHS == 0 or late:
            self._show(shown, run, epoch.epoch, epoch.loss, epoch.accuracy)
        if run.done:
            self._bars.remove_task(shown.task)
            del self._all[str(pipeline.folder), stage]

    def pruned(self, pipeline: Pipeline) -> None:
        """Print what is left, and what did not come out as asked: there may be a long fine-tuning to come."""
        found = pipeline.results
        costs = ", ".join(
            f"{gain} {kind}" for gain, kind in zip(_gains(found, list(cells.COSTS)), cells.COSTS.values(), strict=True)
        )
        kept = " → ".join(cells.percent(found[f"accuracy_{stage}"]) for stage in ("sparse", "recalibrated"))
        for said in (f"{costs}; accuracy {kept} recalibrated", *found["remarks"]):
            self._console.print(f"prune {pipeline.folder.name}: {said}", markup=False, highlight=False, soft_wrap=True)

    def _shown(self, pipeline: Pipeline, stage: str, run: Run) -> _Shown:
        key = (str(pipeline.folder), stage)
        if key not in self._all:
            name = f"{stage} {pipeline.folder.name}"
            self._all[key] = _Shown(name, self._bars.add_task(name, total=_images(run, run.training.epochs)))
            self._all[key].pace.mark(_images(run, run.epoch + run.position / run.steps))
        return self._all[key]

    def _show(self, shown: _Shown, run: Run, epoch: float, loss: float, accuracy: float) -> None:
        images = _images(run, epoch)
        shown.pace.mark(images)
        shown.at = time.monotonic()
        left = _images(run, run.training.epochs) - images
        line = f"{shown.name}: epoch {_count(epoch)}/{run.training.epochs} loss {loss:.3f} accuracy {accuracy:.2%}"
        line += _speed_and_time(shown.pace.speed, left)
        self._bars.update(shown.task, completed=images, description=line)
        if run.done or not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _images(run: Run, epochs: float) -> int:
    return round(epochs * run.steps) * run.training.batch


def _count(epoch: float) -> str:
    return f"{epoch:.0f}" if epoch == round(epoch) else f"{epoch:.1f}"


def _speed_and_time(speed: float, left: int) -> str:
    if speed <= 0:
        return ""
    remaining = f", {timedelta(seconds=round(left / speed))} left" if left else ""
    return f" {speed:,.0f} images/s{remaining}"


def _gains(found: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    for kind in kinds:
        yield cells.gain(found["cost_before"][kind], found["cost_after"][kind]) if "cost_after" in found else ""


def _held_out(found: Mapping[str, Any]) -> str:
    """Unpruned and pruned, as far as there is."""
    names = ("accuracy_held_out_sparse", "accuracy_held_out_recalibrated")
    measured = [f"{100 * found[name]:.2f}" for name in names if name in found]
    return f"{' → '.join(measured)}%" if measured else ""
