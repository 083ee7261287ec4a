"""The record of a long run: gone on from where it is of the same code and machine, written whole or not at all."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from otprune.files import write_atomically

ROOT = Path(__file__).resolve().parent.parent


def gone_on_from(path: Path, fresh: Mapping[str, Any]) -> dict[str, Any]:
    """The record in a file if it is of this run, which means that it has all that `fresh` has; else a copy of `fresh`.

    >>> gone_on_from(Path("nowhere.json"), {"code": "c0de"})
    {'code': 'c0de'}
    """
    if not path.exists():
        return dict(fresh)
    found: dict[str, Any] = json.loads(path.read_bytes())
    if {key: found.get(key) for key in fresh} == fresh:
        print(f"going on from {path}")
        return found
    print(f"{path} is of another seed, code or machine: starting afresh")
    return dict(fresh)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())


def sources() -> Iterable[Path]:
    """The code of the project itself."""
    return (ROOT / "src").rglob("*.py")


def digest_of(code: Iterable[Path]) -> str:
    """A digest of some files of this project.

    >>> digest_of([]) == digest_of([ROOT / "README.md"])
    False
    """
    digest = hashlib.sha256()
    for path in sorted(code):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
