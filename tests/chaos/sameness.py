"""Whether two folders hold the same result: weights bit for bit, records but for the time that things took."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.naming import names
from tests.checkpoint_files import assert_same_end, assert_same_file

TIMES = "seconds"


def differences(left: Path, right: Path) -> Iterator[str]:
    """What differs, one line for each file."""
    ours, theirs = names(left), names(right)
    yield from (f"{name} is in one folder alone" for name in sorted(ours ^ theirs))
    for name in sorted(ours & theirs):
        try:
            _assert_same(left / name, right / name)
        except Exception as error:  # one of them may be no such file at all
            yield f"{name} differs: {error!r}"


def _assert_same(left: Path, right: Path) -> None:
    if left.name == "at-*.safetensors":
        assert_same_end(left.parent, right.parent)
    elif left.suffix == ".safetensors":
        assert_same_file(left, right)
    elif left.name in ("results.json", "record.json"):
        assert _timeless(left) == _timeless(right)
    elif left.name != "events.*":  # a log with the time in it
        assert left.read_bytes() == right.read_bytes()


def _timeless(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"), object_hook=_without_times)


def _without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != TIMES}
