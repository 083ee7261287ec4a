"""The verb for many runs: the grid of networks, λ and seeds, on this machine or on a Ray cluster."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otprune.cli.app import app
from otprune.cli.flags import NUMBERS, PANELS, RUN, Config, Deterministic, Device, numbers, with_settings
from otprune.cli.pipelines import run_all, show
from otprune.cli.running import console, errors_in_one_line, opened, reports, say
from otprune.errors import OtpruneError, TrainingError
from otprune.experiments import stages
from otprune.experiments.board import board
from otprune.experiments.cluster.driver import Portion, sweep_on
from otprune.experiments.experiment import Experiment
from otprune.experiments.explained import MEANINGS
from otprune.experiments.fields import Flat
from otprune.experiments.folder import FINETUNED, RECORD, read_json
from otprune.experiments.following import OnScreen
from otprune.experiments.grid import Grid, is_finished
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report, Several
from otprune.experiments.run_facts import damage
from otprune.experiments.runs_table import InTable, RunsTable, State, moving
from otprune.experiments.screen import broken
from otprune.experiments.settings import resolved
from otprune.report.summary import JSON, MARKDOWN, over_seeds, summarize
from otprune.training.determinism import determinism
from otprune.training.failures import RunsFailed
from otprune.training.holding import holding

CLUSTER = "Cluster"
PATIENCE = 60.0  # seconds for another sweep in the same folder to summarize


@app.command()
@with_settings("", "training", "pruning", "finetuning", without=("model", "training.lam", "training.seed"))
def sweep(
    out: Annotated[
        Path, typer.Option(help="Folder of the sweep; each run has a folder of its own inside.", rich_help_panel=RUN)
    ],
    given: Flat,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"{MEANINGS['model']} Several are separated by commas.", metavar="NAMES", rich_help_panel=PANELS[""]
        ),
    ] = None,
    lam: Annotated[
        str | None,
        typer.Option(help="The λ to train with, separated by commas.", metavar=NUMBERS, rich_help_panel=RUN),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each λ with so many seeds.", rich_help_panel=RUN)] = 1,
    together: Annotated[
        int, typer.Option(min=1, help="Train at most so many side by side on a device.", rich_help_panel=RUN)
    ] = stages.TOGETHER,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Run on the Ray cluster at this address, which this machine is a node of: auto, or host:port.",
            metavar="ADDRESS",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    cpus_per_run: Annotated[
        float, typer.Option(min=0, help="What a run takes of a node's CPUs.", rich_help_panel=CLUSTER)
    ] = 1.0,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="What a run takes of a GPU, such as 0.25. [default: 1/together where the cluster has GPUs]",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    config: Config = None,
    device: Device = "auto",
    deterministic: Deterministic = False,
) -> None:
    """Run the pipeline for several networks, λ and seeds, on one device or a cluster; writes summary.md, summary.json.

    For example: otprune sweep --model vgg14 --data cifar10 --lam 1e-5,1e-4 --seeds 3 --out runs/sweep
    """
    with errors_in_one_line(given), determinism(deterministic):
        models = _names(model)
        grid = _grid(models, lam, seeds, _first(models) | given, config)
        with _damaged_set_aside(grid.folders(out)) as damaged:
            experiments = grid.experiments(out, given, config, without=damaged)
            try:
                if ray is None:
                    run_all(experiments, device, together, _in_a_table)
                else:
                    _run_on(ray, experiments, device, Portion(cpus_per_run, gpus_per_run, together), deterministic)
            except RunsFailed:
                _summarize(out)  # of those that are finished
                raise
            _summarize(out)


def _names(text: str | None) -> list[str]:
    if text is None:
        return []
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise typer.BadParameter("there is no name in it", param_hint="--model")
    return found


def _first(models: Sequence[str]) -> Flat:
    return {"model": models[0]} if models else {}


def _grid(models: Sequence[str], lam: str | None, seeds: int, common: Flat, config: str | None) -> Grid:
    lams = _written(f"{resolved(common, config).training.lam:g}" if lam is None else lam)
    try:
        return Grid(models, lams, seeds)
    except TrainingError as error:
        raise typer.BadParameter(str(error)) from error


def _written(lams: str) -> list[str]:
    """The λ as they were written, which names their folders."""
    found = [part.strip() for part in lams.split(",") if part.strip()]
    if not found:
        raise typer.BadParameter("there is no number in it", param_hint="--lam")
    numbers(",".join(found), float, "--lam")
    return found


@contextmanager
def _damaged_set_aside(folders: Collection[Path]) -> Iterator[Collection[Path]]:
    """The folders of runs with a file that cannot be read: told at the end, with what goes wrong with the others."""
    found = [(folder, error) for folder in folders if (error := damage(folder)) is not None]
    if found and len(found) == len(folders):
        raise RunsFailed(found)
    try:
        yield [folder for folder, _ in found]
    except OtpruneError as error:
        if not found:
            raise
        raise RunsFailed([*found, *(error.errors if isinstance(error, RunsFailed) else [(None, error)])]) from error
    if found:
        raise RunsFailed(found)


@contextmanager
def _in_a_table(screen: Console, pipelines: Sequence[Pipeline]) -> Iterator[Report]:
    """Follow runs on this machine: on a terminal in a table, in a file by lines as ever."""
    if not screen.is_terminal:
        with reports(screen) as report:
            yield report
        return
    table = RunsTable([pipeline.folder.name for pipeline in pipelines])
    _settle(table, [pipeline for pipeline in pipelines if (pipeline.folder / FINETUNED).exists()], State.DONE)
    with moving(table, screen), board(lambda text: typer.echo(text, err=True)) as events:
        try:
            yield Several(InTable(table, screen), events)
        except RunsFailed as failed:
            _settle(table, failed.others(pipelines), State.DONE)
            _settle(table, [pipeline for pipeline, _ in failed.errors], State.FAILED)
            raise
        _settle(table, pipelines, State.DONE)


def _settle(table: RunsTable, pipelines: Sequence[Pipeline], state: State) -> None:
    for pipeline in pipelines:
        table.ends(pipeline.folder.name, state)


def _run_on(
    address: str, experiments: Mapping[Path, Experiment], device: str, portion: Portion, deterministic: bool
) -> None:
    """Run what is missing on a cluster, and show what came of all that is finished."""
    screen = console()
    missing = _missing(experiments, screen)
    table = RunsTable([folder.name for folder in experiments])
    for folder in experiments.keys() - missing.keys():
        table.ends(folder.name, State.DONE)
    say(screen, f"{len(missing)} of {len(experiments)} runs are to do" if missing else "every run is done already")
    try:
        with moving(table, screen):
            sweep_on(address, missing, OnScreen(table, screen), device, portion, deterministic)
    finally:
        done = [folder for folder, experiment in experiments.items() if is_finished(folder, experiment)]
        show({folder.name: read_json(folder / RECORD) for folder in done}, screen)


def _missing(experiments: Mapping[Path, Experiment], screen: Console) -> dict[Path, Experiment]:
    """The runs that are not finished; opened here for once, so that what can never run is refused before it begins."""
    opened(experiments, "cpu", screen)
    return {folder: asked for folder, asked in experiments.items() if not is_finished(folder, asked)}


def _summarize(out: Path) -> None:
    screen = console()
    with holding([out], PATIENCE):  # what a kill left of summaries before goes; another sweep may be at the same
        means = over_seeds(summarize(out, _tell_left_out))
    if means is not None:
        table = Table(*map(broken, means.header))
        for row in means.rows:
            table.add_row(*map(Text, row))  # in which nothing is markup
        screen.print(table)
    say(screen, f"the summary is {out / MARKDOWN}, and for programs {out / JSON}")


def _tell_left_out(run: Path) -> None:
    typer.echo(
        f"{run} is left out of the summary, since its {RECORD} cannot be read: delete that file, or the folder. "
        f"The command that began the run writes it anew.",
        err=True,
    )
