"""The application that the verbs register with."""

from typing import Annotated

import typer

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
