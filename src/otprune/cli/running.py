"""What the verbs have in common: a console, pipelines opened from settings, errors in one line."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from otprune.cli.downloads import downloads
from otprune.cli.flags import in_flags
from otprune.errors import OtpruneError, TrainingError
from otprune.experiments.board import board
from otprune.experiments.claiming import runs_in, some
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import Flat
from otprune.experiments.folder import CONFIGURATION, is_settled
from otprune.experiments.pipeline import Pipeline, open_pipelines
from otprune.experiments.reporting import Report, Several, Silent
from otprune.experiments.run_facts import configuration
from otprune.experiments.screen import progress
from otprune.experiments.settings import implied_recipe
from otprune.training import distributed
from otprune.training.failures import of_the_system
from otprune.training.loop import chosen_device

WIDTH_OF_FILES = 120
LOST = "another of the processes that train together is gone: give the same command again to go on"
DATA_OF_RECIPES = {"ilsvrc": "a folder of images", "digits": "the digits"}


def console() -> Console:
    """The terminal, or a file with lines of a fixed width; of processes that train together, only the leader shows.

    >>> console().width > 0
    True
    """
    made = Console(quiet=not distributed.leads())
    if not made.is_terminal:
        made.width = WIDTH_OF_FILES
    return made


@contextmanager
def errors_in_one_line(given: Flat | None = None) -> Iterator[None]:
    """End with what went wrong and exit status 1, or, broken off by Ctrl-C, with how to go on and 130.

    What is wrong with a setting that was given is told of its flag. Of processes that train together, one tells.
    """
    try:
        yield
    except OtpruneError as problem:
        _tell("\n".join([in_flags(str(problem), given or {}), *getattr(problem, "__notes__", ())]))
        raise typer.Exit(1) from problem
    except OSError as problem:
        told = f"{of_the_system(problem)}. What was finished is kept: mend this, then give the same command again."
        _tell("\n".join([told, *getattr(problem, "__notes__", ())]))
        raise typer.Exit(1) from problem
    except KeyboardInterrupt as stopped:
        _tell(str(stopped) or "stopped: give the same command again to go on")
        raise typer.Exit(130) from stopped
    except RuntimeError as problem:
        if distributed.current() is None or not distributed.is_lost_connection(problem):
            raise
        _tell(f"{LOST} ({problem})")
        raise typer.Exit(1) from problem


def opened(experiments: Mapping[Path, Experiment], device: str, screen: Console) -> list[Pipeline]:
    """Pipelines of experiments in their folders, with a bar for what has to be downloaded first."""
    where = chosen_device(device)
    anew = [asked for folder, asked in experiments.items() if not is_settled(folder)]
    with downloads(screen) as downloading:
        pipelines = open_pipelines(experiments, where, downloading)
    tell_recipe(anew, screen)
    return pipelines


def tell_recipe(begun: Sequence[Experiment], screen: Console) -> None:
    """Say for runs that begin which recipe their settings come from, where it is not the usual one.

    >>> tell_recipe([Experiment("digits_net", "digits")], Console(width=120))
    settings of recipe digits, since the data is the digits; flags and --config overrule them
    """
    for name in sorted({implied_recipe(experiment.data) or "" for experiment in begun} & DATA_OF_RECIPES.keys()):
        why = f"since the data is {DATA_OF_RECIPES[name]}"
        say(screen, f"settings of recipe {name}, {why}; flags and --config overrule them")


def say(screen: Console, text: str) -> None:
    """Print a line as it is, however long.

    >>> say(Console(), "runs/a [1]")
    runs/a [1]
    """
    screen.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def reports(screen: Console) -> Iterator[Report]:
    """Progress on the screen, and TensorBoard in the folders of the runs."""
    if not distributed.leads():
        yield Silent()
        return
    with progress(screen) as bars, board(lambda text: typer.echo(text, err=True)) as events:
        yield Several(bars, events)


def require_begun(out: Path) -> None:
    """Refuse a folder without a run, for verbs that go on with one.

    >>> require_begun(Path("nowhere"))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: nowhere holds no run: begin one with otprune train --model NAME --data NAME --out ...
    """
    if configuration(out) is not None:
        return
    if is_settled(out):
        raise TrainingError(
            f"{out}: {CONFIGURATION} is gone. Put it back, or give the command that began the run again, as it was."
        )
    inside = runs_in(out)
    if inside:
        raise TrainingError(f"{out} is not a run, but holds the runs {some(inside)}: name one of them, {out}/...")
    if out.is_file():
        raise TrainingError(f"{out} is a file: name the folder of a run, as {out.parent} is if it is one of its files")
    raise TrainingError(f"{out} holds no run: begin one with otprune train --model NAME --data NAME --out {out}")


def _tell(message: str) -> None:
    with distributed.telling() as for_me:
        if for_me:
            typer.echo(message, err=True)
