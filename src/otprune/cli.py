"""The command line. Thin: parse, call, print; each verb is a function whose signature is its flags."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from otprune import __version__

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
    runs = {out / f"lam{text}-seed{seed}": (float(text), seed) for text in lam.split(",") for seed in range(seeds)}
    _run_all(model, data, runs, epochs, finetune_epochs, device)


def _run_all(
    model: str, data: str, runs: dict[Path, tuple[float, int]], epochs: int, finetune_epochs: int, device: str
) -> None:
    from otprune.errors import OtpruneError
    from otprune.experiments import stages
    from otprune.experiments.experiment import Experiment
    from otprune.experiments.screen import progress, results_table
    from otprune.training.loop import chosen_device
    from otprune.training.run import Training
    from otprune.training.stopping import Interrupted

    console = Console()
    try:
        where, images = chosen_device(device), stages.open_data(data)
        pipelines = [
            stages.Pipeline(
                Experiment(model, data, Training(epochs=epochs, lam=lam, seed=seed), finetune_epochs=finetune_epochs),
                folder,
                images,
                where,
            )
            for folder, (lam, seed) in runs.items()
        ]
        with progress(console) as report:
            records = stages.run(pipelines, report)
    except (OtpruneError, Interrupted) as problem:
        console.print(f"[bold]{problem}[/]", highlight=False)
        raise typer.Exit(130 if isinstance(problem, Interrupted) else 1) from problem
    console.print(results_table(records))
