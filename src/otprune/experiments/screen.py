"""What a run shows: a bar for each training with loss, accuracy, speed and time left; a table at the end."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from otprune.experiments.stages import Pipeline, Report
from otprune.training.run import EpochRecord

LINE_EVERY = 10


@contextmanager
def progress(console: Console) -> Iterator[Report]:
    """Bars on a terminal, a line every ten epochs elsewhere."""
    columns = "{task.description} epoch {task.completed}/{task.total} loss {task.fields[loss]:.3f} "
    numbers = TextColumn(columns + "accuracy {task.fields[accuracy]:.2%} {task.fields[speed]:,.0f} images/s")
    with Progress(
        BarColumn(20), numbers, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bars:
        yield _Reporter(console, bars)


class _Reporter:
    def __init__(self, console: Console, bars: Progress) -> None:
        self._console, self._bars = console, bars
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._started: dict[tuple[str, str], tuple[int, float]] = {}

    def __call__(self, pipeline: Pipeline, stage: str, epoch: EpochRecord) -> None:
        key = (str(pipeline.folder), stage)
        training = pipeline.experiment.training if stage == "train" else pipeline.experiment.finetuning()
        first, since = self._started.setdefault(key, (epoch.epoch, time.perf_counter()))
        spent = max(time.perf_counter() - since, 1e-9)
        speed = (epoch.epoch - first) * len(pipeline.data.train) / spent
        name = f"{stage} {pipeline.folder.name}"
        if key not in self._tasks:
            self._tasks[key] = self._bars.add_task(name, total=training.epochs, loss=0.0, accuracy=0.0, speed=0.0)
        task, done = self._tasks[key], epoch.epoch
        self._bars.update(task, completed=done, loss=epoch.loss, accuracy=epoch.accuracy, speed=speed)
        if not self._console.is_terminal and (epoch.epoch % LINE_EVERY == 0 or epoch.epoch == training.epochs):
            line = f"{name}: epoch {epoch.epoch}/{training.epochs} loss {epoch.loss:.3f} accuracy {epoch.accuracy:.2%}"
            self._console.print(f"{line} {speed:,.0f} images/s", markup=False, highlight=False, soft_wrap=True)


def results_table(records: Sequence[dict[str, Any]]) -> Table:
    """Accuracy after every stage, and what was gained."""
    table = Table("λ", "seed", "sparse", "pruned", "recalibrated", "fine-tuned", "FLOPs", "parameters")
    for record in records:
        training, found = record["experiment"]["training"], record["results"]
        stages = ("sparse", "pruned", "recalibrated", "finetuned")
        table.add_row(
            f"{training['lam']:g}",
            str(training["seed"]),
            *(f"{found[f'accuracy_{stage}']:.2%}" for stage in stages),
            *(f"{found['cost_before'][kind]:,} → {found['cost_after'][kind]:,}" for kind in ("flops", "parameters")),
        )
    return table
