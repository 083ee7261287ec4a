"""The summary of a sweep's folder, though some record in it cannot be read."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from otprune.errors import OtpruneError
from otprune.experiments.folder import RECORD
from otprune.files import write_atomically
from otprune.report.summary import JSON, MARKDOWN, summarize


def summarize_readable(out: Path) -> dict[str, Any]:
    """Write what came of the runs in a folder; those whose records cannot be read are left out, with a warning.

    >>> import tempfile
    >>> summarize_readable(Path(tempfile.mkdtemp()))
    {'runs': [], 'over_seeds': []}
    """
    try:
        return summarize(out)
    except OtpruneError:
        runs = sorted(path.parent for path in out.glob(f"*/{RECORD}"))
        unreadable = [run for run in runs if not _is_readable(run)]
    for run in unreadable:
        typer.echo(
            f"{run} is left out of the summary, since its {RECORD} cannot be read: delete that file, or the folder. "
            f"The command that began the run writes it anew.",
            err=True,
        )
    return _summary_of([run for run in runs if run not in unreadable], out)


def _is_readable(run: Path) -> bool:
    try:
        _summary_of([run])
    except (OtpruneError, OSError):  # the latter where it is no file at all
        return False
    return True


def _summary_of(runs: Sequence[Path], out: Path | None = None) -> dict[str, Any]:
    """The summary of some runs alone, written into a folder if one is given: of copies of their records."""
    with TemporaryDirectory() as place:
        for run in runs:
            copy = Path(place, run.name)
            copy.mkdir()
            shutil.copyfile(run / RECORD, copy / RECORD)
        found = summarize(Path(place))
        if out is not None:
            for name in (JSON, MARKDOWN):
                write_atomically(out / name, Path(place, name).read_bytes())
    return found
