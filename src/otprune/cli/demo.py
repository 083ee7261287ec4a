"""The verb that shows the whole method in a minute."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from otprune.cli.app import app


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and of the order of the images.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write the record of the run to this file.")] = None,
    other_seeds: Annotated[
        int, typer.Option(min=0, help="Run with the next so many seeds as well, and add what they gain to the record.")
    ] = 0,
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
    if other_seeds and json is None:
        raise typer.BadParameter("--other-seeds adds to the record: say where to write it with --json FILE")
    record = digits.run(digits.Settings(seed=seed), Screen(Console()))
    if json is not None:
        digits.write(record, json)
        if other_seeds:
            digits.check_other_seeds(json, seeds=range(seed + 1, seed + 1 + other_seeds))
