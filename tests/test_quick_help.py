"""The command line says what it is without torch, whose import takes seconds; the library offers the same names."""

import pkgutil
import subprocess
import sys
from inspect import getdoc
from types import ModuleType

import pytest
from typer.testing import CliRunner

import otprune as ot
from otprune import cli
from otprune.cli import reproduce, rounds, stages, sweeping
from otprune.cli.app import MODULES, written_in

MODULES_OF_PACKAGE = sorted(
    module.name for module in pkgutil.iter_modules(ot.__path__, "otprune.") if module.name != "otprune.__main__"
)


def in_a_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, encoding="utf-8")


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), (), ("rnu",)], ids=str)
def test_what_calls_no_verb_imports_no_torch(arguments: tuple[str, ...]) -> None:
    leave = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))"
    done = in_a_process(f"{leave}; from otprune.__main__ import main; main()", *arguments)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_names_every_verb_with_the_beginning_of_its_docstring() -> None:
    shown = " ".join(CliRunner().invoke(cli.app, ["--help"], terminal_width=100).output.replace("│", " ").split())
    for verb in (stages.run, sweeping.sweep, rounds.iterate, rounds.verify_threshold, reproduce.reproduce):
        first = (getdoc(verb) or "").partition("\n")[0]
        assert f"{verb.__name__.replace('_', '-')} {first}" in shown


def test_every_verb_that_is_written_can_be_called() -> None:
    for name in (name for module in MODULES for name, _ in written_in(module)):
        done = CliRunner().invoke(cli.app, [name, "--help"])
        assert done.exit_code == 0 and f"{name} [OPTIONS]" in done.output


def test_a_verb_that_is_not_there_is_told_what_is_like_it() -> None:
    done = CliRunner().invoke(cli.app, ["rnu"])
    assert done.exit_code == 2 and "Did you mean 'run'?" in done.output


def test_public_names_are_not_modules_whatever_was_imported_first() -> None:
    imports = "\n".join(f"import {name}" for name in MODULES_OF_PACKAGE)
    check = "print([name for name in ot.__all__ if isinstance(getattr(ot, name), type(ot)) or name not in dir(ot)])"
    done = in_a_process(f"{imports}\nimport otprune as ot\n{check}")
    assert done.stdout == "[]\n", done.stderr


def test_modules_are_attributes_of_the_package_as_ever() -> None:
    assert isinstance(ot.errors, ModuleType) and isinstance(ot.thresholds, ModuleType)
    with pytest.raises(AttributeError, match="module 'otprune' has no attribute 'prnue'"):
        ot.prnue  # noqa: B018
    names: dict[str, object] = {}
    exec("from otprune import *", names)
    assert names["plan"] is ot.plan and set(ot.__all__) <= set(names)
