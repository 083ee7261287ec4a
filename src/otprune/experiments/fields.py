"""Settings by their dotted names, such as training.lam: checked against the dataclasses that they fill."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

from otprune.errors import TrainingError
from otprune.jsons import LARGEST

Made = TypeVar("Made")
Flat = dict[str, Any]
"""Values by dotted name."""

# What the command line calls some settings; all others are flags by their own names.
RENAMED = {f"finetuning.{name}": f"finetune_{name}" for name in ("epochs", "rate", "schedule")}

_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_ITEMS: dict[Any, str] = {int: "whole numbers", float: "numbers"}


def kinds(cls: type) -> dict[str, Any]:
    """The type of every setting of a dataclass and of the dataclasses in it.

    >>> from otprune.experiments.experiment import Experiment
    >>> kinds(Experiment)["training.lam"]
    <class 'float'>
    """
    found: dict[str, Any] = {}
    for name, kind in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(kind):
            found |= {f"{name}.{inner}": inner_kind for inner, inner_kind in kinds(typing.cast(type, kind)).items()}
        else:
            found[name] = kind
    return found


def flat(tables: Mapping[str, Any]) -> Flat:
    """Nested tables as dotted names.

    >>> flat({"model": "vgg14", "training": {"lam": 1e-4}})
    {'model': 'vgg14', 'training.lam': 0.0001}
    """
    found: Flat = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": inner_value for inner, inner_value in flat(value).items()}
        else:
            found[name] = value
    return found


def argument(name: str) -> str:
    """What a verb calls a setting.

    >>> argument("finetuning.epochs"), argument("training.decay_at")
    ('finetune_epochs', 'decay_at')
    """
    return RENAMED.get(name, name.rpartition(".")[2])


def flag(name: str) -> str:
    """The flag of a setting.

    >>> flag("finetuning.epochs"), flag("training.decay_at")
    ('--finetune-epochs', '--decay-at')
    """
    return f"--{argument(name).replace('_', '-')}"


def checked(cls: type, values: Flat, where: str) -> Flat:
    """The same values as the dataclass has them; a name that it does not know and a value of another kind are refused.

    >>> from otprune.experiments.experiment import Experiment
    >>> checked(Experiment, {"training.rate": 1}, "my.toml")
    {'training.rate': 1.0}
    >>> checked(Experiment, {"training.epoch": 1}, "my.toml")
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: my.toml: there is no setting training.epoch; did you mean training.epochs?
    """
    known = kinds(cls)
    for name in values:
        if name not in known:
            raise TrainingError(f"{where}: there is no setting {name:.200}; {_advice(name[:200], known)}")
    return {name: _converted(value, known[name], f"{where}: {name}") for name, value in values.items()}


def made(cls: type[Made], values: Flat, where: str) -> Made:
    """The dataclass with these values, and with its defaults for all others.

    >>> from otprune.experiments.experiment import Experiment
    >>> made(Experiment, {"model": "vgg14", "data": "cifar10", "training.lam": 1e-3}, "my.toml").training.lam
    0.001
    """
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        kind = typing.get_type_hints(cls)[field.name]
        if dataclasses.is_dataclass(kind):
            prefix = f"{field.name}."
            own = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
            arguments[field.name] = made(typing.cast(type, kind), own, where)
        elif field.name in values:
            arguments[field.name] = values[field.name]
        elif field.default is dataclasses.MISSING:
            raise TrainingError(f"{where}: it does not say which {field.name}: give it with --{field.name}")
    return cls(**arguments)


def _advice(name: str, known: Mapping[str, Any]) -> str:
    sections = {section for section, dot, _ in (setting.partition(".") for setting in known) if dot}
    if name in sections:
        return f"[{name}] is a table of settings"
    last = name.rpartition(".")[2]
    elsewhere = [setting for setting in known if setting.rpartition(".")[2] == last]
    near = difflib.get_close_matches(name, elsewhere or known, n=1, cutoff=0.0)
    return f"did you mean {near[0]}?"


def _converted(value: Any, kind: Any, what: str) -> Any:
    """The value in the setting's own type: JSON and TOML write 1 for 1.0 and know lists, not tuples."""
    if not _fits(value, kind):
        raise TrainingError(f"{what} must be {_described(kind)}, not {value!r:.200}")
    if value is None:
        return None
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return tuple(item(entry) for entry in value)
    return float(value) if kind is float else value


def _fits(value: Any, kind: Any) -> bool:
    if value is None:
        return kind is not _without_none(kind)
    kind = _without_none(kind)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(value, int) and abs(value) > LARGEST:
        return False
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (types.UnionType, typing.Union):
        return kind
    return next(inner for inner in get_args(kind) if inner is not types.NoneType)


def _described(kind: Any) -> str:
    kind = _without_none(kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list of {_ITEMS[get_args(kind)[0]]}"
    return _WORDS[kind]
