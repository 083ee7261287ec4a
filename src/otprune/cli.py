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
