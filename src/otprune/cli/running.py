"""What the verbs have in common: a console, pipelines opened from settings, errors in one line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments.board import board
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import CONFIGURATION
from otprune.experiments.pipeline import Pipeline, open_pipelines
from otprune.experiments.reporting import Report, Several
from otprune.experiments.screen import progress
from otprune.training.data import Progress as DownloadProgress
from otprune.training.loop import chosen_device

WIDTH_OF_FILES = 120


def console() -> Console:
    """The terminal, or a file with lines of a fixed width.

    >>> console().width > 0
    True
    """
    made = Console()
    if not made.is_terminal:
        made.width = WIDTH_OF_FILES
    return made


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End with what went wrong and exit status 1, or, broken off by Ctrl-C, with how to go on and 130."""
    try:
        yield
    except OtpruneError as problem:
        typer.echo(problem, err=True)
        raise typer.Exit(1) from problem
    except OSError as problem:
        typer.echo(f"{problem}. What was finished is kept: mend this, then give the same command again.", err=True)
        raise typer.Exit(1) from problem
    except KeyboardInterrupt as stopped:
        typer.echo(str(stopped) or "stopped: give the same command again to go on", err=True)
        raise typer.Exit(130) from stopped


def opened(experiments: Mapping[Path, Experiment], device: str, screen: Console) -> list[Pipeline]:
    """Pipelines of experiments in their folders, with a bar for what has to be downloaded first."""
    where = chosen_device(device)
    with downloads(screen) as downloading:
        return open_pipelines(experiments, where, downloading)


@contextmanager
def reports(screen: Console) -> Iterator[Report]:
    """Progress on the screen, and TensorBoard in the folders of the runs."""
    with progress(screen) as bars, board(lambda text: typer.echo(text, err=True)) as events:
        yield Several(bars, events)


def require_begun(out: Path) -> None:
    """Refuse a folder without a run, for verbs that go on with one.

    >>> require_begun(Path("nowhere"))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: nowhere holds no run: begin one with otprune train --out nowhere
    """
    if not (out / CONFIGURATION).exists():
        raise TrainingError(f"{out} holds no run: begin one with otprune train --out {out}")


@contextmanager
def downloads(screen: Console) -> Iterator[DownloadProgress]:
    """A bar for each download."""
    columns = (TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def downloading(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield downloading
