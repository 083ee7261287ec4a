"""The verb that makes a page of runs."""

from pathlib import Path
from typing import Annotated

import typer

from otprune.cli.app import app
from otprune.cli.running import console, errors_in_one_line, say
from otprune.cli.targets import require_target
from otprune.report.html.content import content
from otprune.report.html.figures import draw
from otprune.report.html.page import write_page
from otprune.report.html.subjects import subjects


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs, or records of runs as results/ has them; the first is shown.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Also draw the same for papers, as SVG and PNG, into this folder.")
    ] = None,
) -> None:
    """Make one HTML page of runs that opens anywhere: what was gained, every layer, and δ to move.

    Latencies are in it where otprune bench wrote them into the run: otprune bench RUN --json RUN/bench.json.

    For example: otprune report runs/vgg14 -o report.html
    """
    screen = console()
    with errors_in_one_line():
        found = subjects(runs)
        require_target(out, ".html")
        with screen.status("planning every run at several δ ..."):
            shown = content(found)
        write_page(shown, out)
        say(screen, f"the report is {out}")
        for path in draw(shown, figures) if figures is not None else ():
            say(screen, f"drawn {path}")
