"""JSON from outside: bounded in size, depth and numbers before anything is made of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otprune.errors import OtpruneError
from otprune.reading import MOST_BYTES, text_of

MOST_LEVELS = 64
LARGEST = 2**63 - 1  # of whole numbers: what tensors count with
TOO_DEEP = f"it is nested more than {MOST_LEVELS} levels deep"

Refusal = Callable[[str], OtpruneError]
"""Makes the error to raise out of the reason."""


def parsed(text: str) -> Any:
    """What JSON says; a `ValueError` tells what is wrong with it.

    NaN and infinity are read: Python writes them, though JSON has no such numbers.

    >>> parsed('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> parsed("[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested more than 64 levels deep
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has {len(text):,} characters, more than the {MOST_BYTES:,} that are read")
    try:
        found = json.loads(text, parse_int=_whole)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    require_shallow(found)
    return found


def read_object(path: Path, refused: Refusal) -> dict[str, Any]:
    """The JSON object in a file; for anything else, the error that `refused` makes of the reason is raised.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "note.json").write_text('{"λ": 0.1}', encoding="utf-8")
    ...     read_object(Path(folder, "note.json"), OtpruneError)
    {'λ': 0.1}
    >>> read_object(Path("nowhere.json"), lambda why: OtpruneError(f"this is no note: {why}"))
    Traceback (most recent call last):
    otprune.errors.OtpruneError: this is no note: there is no such file
    """
    try:
        found = parsed(text_of(path))
    except ValueError as error:
        raise refused(str(error)) from error
    if not isinstance(found, dict):
        raise refused(f"it has a {type(found).__name__} where an object is expected")
    return found


def require_shallow(found: Any) -> None:
    """Raise `ValueError` where lists and objects lie deeper in each other than anything that otprune writes.

    >>> require_shallow({"a": [1, [2]]})
    """
    level = [found]
    for _ in range(MOST_LEVELS + 1):
        level = [item for one in level for item in _items(one) if isinstance(item, list | dict)]
    if level:
        raise ValueError(TOO_DEEP)


def _whole(digits: str) -> int:
    number = int(digits)
    if abs(number) > LARGEST:
        raise ValueError(f"{digits[:30]} is larger than any number that is written")
    return number


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
