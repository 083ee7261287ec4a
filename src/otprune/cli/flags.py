"""Flags made of the settings of an experiment: one for each field, with its type, its default and its meaning."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from otprune.experiments.experiment import Experiment
from otprune.experiments.explained import MEANINGS
from otprune.experiments.fields import Flat, argument, flag, flat, kinds
from otprune.experiments.settings import FLAGS, recipes

Command = Callable[..., None]

PANELS = {"": "Experiment", "training": "Training", "pruning": "Pruning", "finetuning": "Fine-tuning"}
RUN = "Run"
NUMBERS = "NUMBERS"  # separated by commas

Out = Annotated[Path, typer.Option(help="Folder of the run; give it again to go on with it.", rich_help_panel=RUN)]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.", rich_help_panel=RUN)]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="The same weights every time on the same hardware, unless pruned for a latency; slower on a GPU.",
        rich_help_panel=RUN,
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        help=f"A TOML file with settings, or a recipe: {', '.join(recipes())}. Flags overrule it.",
        rich_help_panel=RUN,
    ),
]


def with_settings(*sections: str, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a verb the flags of some sections, "" being model, data and what else belongs to none.

    The verb takes them as `given`: the settings that were given, by dotted name.

    >>> @with_settings("pruning")
    ... def verb(out: Out, given: dict[str, Any]) -> None:
    ...     print(given)
    >>> list(inspect.signature(verb).parameters)[:3]
    ['out', 'rule', 'delta']
    >>> verb(out=Path("runs"), delta=1e-2)
    {'pruning.delta': 0.01}
    """
    names = [name for name in kinds(Experiment) if _section(name) in sections and name not in without]
    generated = {argument(name): name for name in names}

    def decorate(verb: Command) -> Command:
        @functools.wraps(verb)
        def command(**values: Any) -> None:
            given = {generated[key]: value for key, value in values.items() if key in generated and value is not None}
            own = {key: value for key, value in values.items() if key not in generated}
            verb(**own, given={name: _read(name, value) for name, value in given.items()})

        parameters = [*_own_parameters(verb), *_parameters(names)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def in_flags(message: str, given: Flat) -> str:
    """What is wrong with a setting, told of the flag that it was given with.

    >>> in_flags("finetuning.epochs must be at least 0, not -1", {"finetuning.epochs": -1})
    '--finetune-epochs must be at least 0, not -1'
    """
    subject, _, rest = message.removeprefix(f"{FLAGS}: ").partition(" ")
    for name in given:
        if subject in (name, name.removeprefix("training."), name.removeprefix("pruning.")):
            return f"{flag(name)} {rest}"
    return message


def _own_parameters(verb: Command) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.name != "given":
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameters(names: Collection[str]) -> Iterator[inspect.Parameter]:
    defaults = flat(Experiment("", "").to_dict())
    for name in names:
        kind, own = kinds(Experiment)[name], flag(name)
        decls = (f"{own}/--no-{own.removeprefix('--')}",) if kind is bool else (own,)
        option = typer.Option(
            *decls,
            help=MEANINGS[name] + _shown(defaults[name]),
            show_default=False,  # typer's is None, which says that a flag was not given
            metavar=_metavar(kind),
            rich_help_panel=PANELS[_section(name)],
        )
        annotation = Annotated[_typed(kind) | None, option]  # type: ignore[valid-type]
        yield inspect.Parameter(argument(name), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _section(name: str) -> str:
    section, dot, _ = name.partition(".")
    return section if dot else ""


def _typed(kind: Any) -> Any:
    """The type that the command line reads: lists come as text, separated by commas, and so do names to choose from."""
    return str if get_origin(kind) in (tuple, Literal) else kind


def _metavar(kind: Any) -> str | None:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return NUMBERS if get_origin(kind) is tuple else None


def _shown(default: Any) -> str:
    """The default as a user would type it; nothing where there is none, and where a flag says it with its name."""
    if default is None or default == "" or default is False:
        return ""
    if isinstance(default, list):
        return f" [default: {','.join(map(str, default))}]"
    return f" [default: {'on' if default is True else f'{default:g}' if isinstance(default, float) else default}]"


def _read(name: str, value: Any) -> Any:
    kind = kinds(Experiment)[name]
    return numbers(value, get_args(kind)[0], flag(name)) if get_origin(kind) is tuple else value


def numbers(text: str, kind: type, given_by: str) -> tuple[Any, ...]:
    """Numbers separated by commas.

    >>> numbers("0.5, 0.75", float, "--decay-at")
    (0.5, 0.75)
    """
    return tuple(_number(part.strip(), kind, given_by) for part in text.split(",") if part.strip())


def _number(text: str, kind: type, given_by: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        what = "a whole number" if kind is int else "a number"
        raise typer.BadParameter(f"{text!r} is not {what}", param_hint=given_by) from error
