"""What a parser under test is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Read = Callable[[bytes, int, Path], object]
"""Gets bytes, the number of the honest file that they were made from, and a folder to put them in."""


@dataclass(frozen=True)
class Target:
    """A parser: of what kind its files are, some honest ones, and what reads one that may be damaged."""

    kind: str
    samples: Sequence[bytes]
    read: Read


def put(content: bytes, path: Path) -> Path:
    """Write a file, also in a folder that is not there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
