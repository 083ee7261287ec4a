"""The command line, in processes of its own or in this one, and what it leaves in a folder."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from otprune.cli import app
from tests.processes import command, start

DIGITS = {"model": "digits_net", "data": "digits", "device": "cpu"}


class Done(NamedTuple):
    """How a command ended."""

    code: int | None
    out: str
    err: str


def otprune(verb: str, **options: object) -> Done:
    """A command that begins a run of digits_net on digits."""
    return said(verb, **{**DIGITS, **options})


def said(verb: str, **options: object) -> Done:
    """A command with these options alone."""
    return done(command, (verb, *flags(options)))


def done(target: Callable[..., None], arguments: tuple[str, ...], *others: object) -> Done:
    """A command in one of the ways that `tests.processes` has."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = start(target, arguments, out, err, *others)
        process.join()
        return Done(process.exitcode, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def run_here(verb: str, *arguments: object, **options: object) -> Done:
    """A command with these options alone, in this process, which is quicker."""
    result = CliRunner().invoke(app, [verb, *map(str, arguments), *flags(options)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def flags(options: dict[str, object]) -> tuple[str, ...]:
    """`hold_out=0.1` as `--hold-out 0.1`, and `augment=None` as `--augment`."""
    found: list[str] = []
    for name, value in options.items():
        found += [f"--{name.replace('_', '-')}", *([] if value is None else [str(value)])]
    return tuple(found)


def results(folder: Path) -> dict[str, Any]:
    """The results that the record of a folder holds."""
    found: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))["results"]
    return found
