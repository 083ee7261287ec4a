"""The command line. Thin: parse, call, print; each verb is a function whose signature is its flags."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from otprune import __version__

if TYPE_CHECKING:
    from otprune.experiments.stages import Pipeline

WIDTH_OF_FILES = 120

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"otprune {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Prune convolutional networks exactly, by optimal thresholds on their batch-norm scaling factors."""


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and of the order of the images.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write the record of the run to this file.")] = None,
) -> None:
    """Train, prune and fine-tune a classifier of hand-written digits, in about a minute and without a download."""
    try:
        from otprune import demo as digits
        from otprune.demo_screen import Screen
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "sklearn":
            raise
        typer.echo("The demo's images come with scikit-learn: pip install 'otprune[demo]'", err=True)
        raise typer.Exit(1) from missing
    record = digits.run(digits.Settings(seed=seed), Screen(Console()))
    if json is not None:
        digits.write(record, json)


@app.command()
def run(
    model: Annotated[str, typer.Option(help="A network of otprune.models.")],
    data: Annotated[str, typer.Option(help="cifar10, cifar100 or digits.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; give it again to go on with it.")],
    lam: Annotated[float, typer.Option(help="λ, the strength of the L1 penalty.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the order of images and their augmentation.")] = 0,
    epochs: Annotated[int, typer.Option(help="Epochs of training with sparsity.")] = 160,
    finetune_epochs: Annotated[int, typer.Option(help="Epochs of fine-tuning.")] = 40,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
) -> None:
    """Train with sparsity, prune by OT, recalibrate and fine-tune: the whole pipeline, resumable."""
    _run_all(model, data, {out: (lam, seed)}, epochs, finetune_epochs, device)


@app.command()
def sweep(
    model: Annotated[str, typer.Option(help="A network of otprune.models.")],
    data: Annotated[str, typer.Option(help="cifar10, cifar100 or digits.")],
    out: Annotated[Path, typer.Option(help="Folder of the sweep; each run has a folder of its own inside.")],
    lam: Annotated[str, typer.Option(help="The λ to train with, separated by commas.")] = "1e-4",
    seeds: Annotated[int, typer.Option(help="Train each λ with this many seeds.")] = 1,
    epochs: Annotated[int, typer.Option(help="Epochs of training with sparsity.")] = 160,
    finetune_epochs: Annotated[int, typer.Option(help="Epochs of fine-tuning.")] = 40,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
) -> None:
    """Run the pipeline for several λ and seeds, all side by side on one device."""
    lams = {text.strip(): _number(text) for text in lam.split(",")}
    runs = {out / f"lam{text}-seed{seed}": (value, seed) for text, value in lams.items() for seed in range(seeds)}
    _run_all(model, data, runs, epochs, finetune_epochs, device)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number; write --lam 1e-5,1e-4") from error


def _run_all(
    model: str, data: str, runs: dict[Path, tuple[float, int]], epochs: int, finetune_epochs: int, device: str
) -> None:
    from otprune.errors import OtpruneError
    from otprune.experiments import stages
    from otprune.experiments.screen import progress, results_table

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    try:
        pipelines = _pipelines(model, data, runs, epochs, finetune_epochs, device)
        with progress(console) as report:
            records = stages.run(pipelines, report)
    except (OtpruneError, OSError) as problem:
        typer.echo(problem, err=True)
        raise typer.Exit(1) from problem
    except KeyboardInterrupt as stopped:
        typer.echo(str(stopped) or "stopped: give the same command again to go on", err=True)
        raise typer.Exit(130) from stopped
    console.print(results_table(records))


def _pipelines(
    model: str, data: str, runs: dict[Path, tuple[float, int]], epochs: int, finetune_epochs: int, device: str
) -> "list[Pipeline]":
    from otprune.experiments import stages
    from otprune.experiments.experiment import Experiment, augmented
    from otprune.training.loop import chosen_device
    from otprune.training.run import Training

    where, images = chosen_device(device), stages.open_data(data)
    pipelines = []
    for folder, (lam, seed) in runs.items():
        training = Training(epochs=epochs, lam=lam, seed=seed, augment=augmented(data))
        experiment = Experiment(model, data, training, finetune_epochs=finetune_epochs)
        pipelines.append(stages.Pipeline(experiment, folder, images, where))
    return pipelines
