"""Whether data as JSON has it is of the kind that a type says, down to its last item."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NewType, get_args, get_origin

AnyNumber = NewType("AnyNumber", float)
"""A number that may be infinite or none at all, as a loss may be."""

Share = NewType("Share", float)
"""A number from 0 to 1, as an accuracy is."""

_SCALARS: dict[Any, tuple[set[type], str]] = {
    bool: ({bool}, "true or false"),
    int: ({int}, "a whole number"),
    float: ({int, float}, "a finite number"),
    AnyNumber: ({int, float}, "a number"),
    Share: ({int, float}, "a number from 0 to 1"),
    str: ({str}, "a text"),
}


def require_kind(value: Any, kind: Any, place: str) -> None:
    """Raise `ValueError`, naming the place, unless `value` is what JSON makes of a `kind`.

    A kind is a plain type, a list, tuple or dict of kinds, a dataclass or a `TypedDict`, or one of these or None.
    A `TypedDict` lets other names be there too.

    >>> require_kind({"a": [1, 2]}, dict[str, list[int]], "it")
    >>> require_kind({"a": [1, "2"]}, dict[str, list[int]], "it")
    Traceback (most recent call last):
    ValueError: it["a"] holds '2', not a whole number
    """
    origin = get_origin(kind)
    if kind in _SCALARS:
        _require_all([value], kind, f"{place} is")
    elif origin in (typing.Union, types.UnionType):
        _require_unless_none(value, get_args(kind), place)
    elif origin in _CONTAINERS:
        _CONTAINERS[origin](value, get_args(kind), place)
    elif kind is not Any:
        _require_fields(value, kind, place)


def _require_all(values: Iterable[Any], kind: Any, said: str) -> None:
    """The kinds of many numbers at once: plans have a million of them."""
    allowed, name = _SCALARS[kind]
    if not set(map(type, values)) <= allowed:
        wrong = next(value for value in values if type(value) not in allowed)
        raise ValueError(f"{said} {wrong!r:.60}, not {name}")
    if kind is float and not all(map(math.isfinite, values)):
        raise ValueError(f"{said} {next(value for value in values if not math.isfinite(value))}, not {name}")
    if kind is Share and not all(0 <= value <= 1 for value in values):
        raise ValueError(f"{said} {next(value for value in values if not 0 <= value <= 1)}, not {name}")


def _require_unless_none(value: Any, inner: tuple[Any, ...], place: str) -> None:
    if value is not None:
        require_kind(value, next(one for one in inner if one is not types.NoneType), place)


def _require_items(value: Any, inner: tuple[Any, ...], place: str) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{place} is {value!r:.60}, not a list")
    if inner[0] in _SCALARS:
        _require_all(value, inner[0], f"{place} holds")
        return
    for index, item in enumerate(value):
        require_kind(item, inner[0], f"{place}[{index}]")


def _require_values(value: Any, inner: tuple[Any, ...], place: str) -> None:
    _require_object(value, place)
    for name, item in value.items():
        if inner[0] is int and not (name.isascii() and name.isdecimal()):
            raise ValueError(f"{place} has {name!r:.60} where a whole number is expected")
        require_kind(item, inner[1], f'{place}["{name:.60}"]')


def _require_fields(value: Any, kind: Any, place: str) -> None:
    _require_object(value, place)
    known = typing.get_type_hints(kind)
    missing = sorted(_required(kind) - value.keys())
    if missing:
        raise ValueError(f"{place} has no {missing[0]}")
    for name, item in value.items():
        if name in known:
            require_kind(item, known[name], f"{place}.{name}")
        elif dataclasses.is_dataclass(kind):
            raise ValueError(f"{place} has a {name!r:.60} that nobody knows")


def _require_object(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is {value!r:.60}, not an object with names")


def _required(kind: Any) -> set[str]:
    if typing.is_typeddict(kind):
        return set(kind.__required_keys__)
    unset = dataclasses.MISSING
    return {own.name for own in dataclasses.fields(kind) if own.default is own.default_factory is unset}


_CONTAINERS: dict[Any, Callable[[Any, tuple[Any, ...], str], None]] = {
    list: _require_items,
    tuple: _require_items,
    dict: _require_values,
}
