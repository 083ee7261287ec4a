"""The record of the long run: for each parser how many inputs it got, accepted, refused, and what went wrong."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from otprune.provenance import provenance
from tests.long_runs import digest_of, gone_on_from, sources, write

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

    def write(self, path: Path) -> None:
        """Write it with the totals."""
        totals = {
            name: sum(getattr(parser, name) for parser in self.parsers.values())
            for name in ("inputs", "accepted", "refused")
        }
        write(path, {**asdict(self), "totals": totals | {"failures": self.failures}})

    @staticmethod
    def of(data: dict[str, Any]) -> Record:
        """The record that `write` wrote, or the beginning of one."""
        parsers = {name: Parser(**fields) for name, fields in data.get("parsers", {}).items()}
        return Record(data["seed"], data["code"], data["provenance"], parsers)


def started(seed: int, path: Path) -> Record:
    """The record to go on from: the one in the file if it is of this run, else an empty one."""
    return Record.of(gone_on_from(path, {"seed": seed, "code": fingerprint(), "provenance": provenance()}))


def fingerprint() -> str:
    """A digest of the code under test and of what tests it.

    >>> len(fingerprint())
    64
    """
    return digest_of([*sources(), *Path(__file__).parent.glob("*.py")])
