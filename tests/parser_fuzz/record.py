"""The record of the long run: for each parser how many inputs it got, accepted, refused, and what went wrong."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from otprune.files import write_atomically
from otprune.provenance import provenance
from tests.fuzz import ROOT, digest_of

KEPT_BYTES = 20_000  # of an input that went wrong; a longer one can be drawn again


@dataclass
class Parser:
    """The sums over the inputs of one parser so far."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, outcome: str | None, number: int, content: bytes, problem: str | None) -> None:
        """Count one more input; one without an outcome went wrong."""
        self.inputs += 1
        self.accepted += outcome == "accepted"
        self.refused += outcome == "refused"
        if outcome is None:
            kept = base64.b64encode(content).decode() if len(content) <= KEPT_BYTES else None
            self.failures.append({"number": number, "problem": problem, "input": kept})


@dataclass
class Record:
    """All parsers."""

    seed: int
    code: str
    provenance: dict[str, Any]
    parsers: dict[str, Parser] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """How many inputs went wrong."""
        return sum(len(parser.failures) for parser in self.parsers.values())

    def is_of(self, other: Record) -> bool:
        """Whether both come from the same seed, code and machine."""
        return (self.seed, self.code, self.provenance) == (other.seed, other.code, other.provenance)

    def write(self, path: Path) -> None:
        """Write it whole or not at all, with the totals."""
        totals = {
            name: sum(getattr(parser, name) for parser in self.parsers.values())
            for name in ("inputs", "accepted", "refused")
        }
        data = {**asdict(self), "totals": totals | {"failures": self.failures}}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())

    @staticmethod
    def read(path: Path) -> Record:
        """The record that `write` wrote."""
        data = json.loads(path.read_bytes())
        parsers = {name: Parser(**fields) for name, fields in data["parsers"].items()}
        return Record(data["seed"], data["code"], data["provenance"], parsers)


def started(seed: int, path: Path) -> Record:
    """The record to go on from: the one in the file if it is of this run, else an empty one."""
    fresh = Record(seed, fingerprint(), provenance())
    if not path.exists():
        return fresh
    found = Record.read(path)
    if found.is_of(fresh):
        print(f"going on from {path}")
        return found
    print(f"{path} is of another seed, code or machine: starting afresh")
    return fresh


def fingerprint() -> str:
    """A digest of the code under test and of what tests it.

    >>> len(fingerprint())
    64
    """
    return digest_of([*(ROOT / "src").rglob("*.py"), *Path(__file__).parent.glob("*.py")])
