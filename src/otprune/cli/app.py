"""The application that the verbs register with."""

import ast
from collections.abc import Iterator
from importlib import import_module, resources
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from otprune import __version__

MODULES = ("stages", "sweeping", "rounds", "reproduce", "exporting", "inspecting", "demo", "benching", "reporting")


class Verbs(TyperGroup):
    """The verbs of some modules of this package; a module is imported when one of its verbs is called.

    Their imports take seconds, torch's above all. To name them, what is written in the modules is enough.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.modules = {name: module for module in MODULES for name, _ in written_in(module)}
        named = {name: TyperCommand(name, help=said) for module in MODULES for name, said in written_in(module)}
        self.commands = {**named, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import what is called, in the place of its name."""
        name = args[0]
        if name in self.modules:
            import_module(f"{__package__}.{self.modules[name]}")
            self.commands[name] = get_group(app).commands[name]
        return super().resolve_command(ctx, args)


def written_in(module: str) -> Iterator[tuple[str, str]]:
    """The verbs in a module of this package and what their docstrings say, without importing it.

    >>> [name for name, _ in written_in("rounds")]
    ['iterate', 'verify-threshold']
    """
    source = resources.files(__package__).joinpath(f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and "app.command()" in map(ast.unparse, node.decorator_list):
            yield node.name.replace("_", "-"), ast.get_docstring(node) or ""


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # boxes around every frame of torch hide the line of the model that is to blame
)


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
