"""What the kills came to so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.commands import CASES, VERBS
from tests.chaos.rounds import Killed, Round
from tests.long_runs import write

COUNTERS = ("kills_by_verb", "kills_by_moment", "kills_while_writing", "rounds_by_case")
BETWEEN = "nothing"  # what is being written when no temporary file is there


@dataclass
class Record:
    """The sums over all rounds."""

    seed: int
    code: str
    provenance: dict[str, Any]
    rounds: int = 0
    kills: int = 0
    survived: int = 0
    resumed: int = 0
    resumed_the_same: int = 0
    seconds: float = 0.0
    kills_by_verb: Counter[str] = field(default_factory=Counter)
    kills_by_moment: Counter[str] = field(default_factory=Counter)
    kills_while_writing: Counter[str] = field(default_factory=Counter)
    rounds_by_case: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, found: Round) -> None:
        """Count one more round; its kills are survived where nothing at all was wrong with it.

        A run that ended before its first kill says nothing about resuming.
        """
        self.rounds_by_case[found.case] += 1
        self.resumed += bool(found.kills)
        self.resumed_the_same += bool(found.kills) and found.same
        self.survived += 0 if found.problems else len(found.kills)
        for killed in found.kills:
            self._add_kill(CASES[found.case].verb, killed)
        if found.problems:
            kills = [f"{kill.moment}, writing {', '.join(kill.writing) or BETWEEN}" for kill in found.kills]
            failure = {"round": self.rounds, "case": found.case, "kills": kills, "problems": found.problems}
            self.failures.append(failure)
        self.rounds += 1

    def _add_kill(self, verb: str, killed: Killed) -> None:
        self.kills += 1
        self.kills_by_verb[verb] += 1
        self.kills_by_moment[killed.moment.operation or "time"] += 1
        self.kills_while_writing.update(killed.writing or [BETWEEN])

    def next_verb(self) -> str:
        """The one that was killed least."""
        return min(VERBS, key=lambda verb: self.kills_by_verb[verb])

    def write(self, path: Path) -> None:
        """Write the record, the most frequent first."""
        write(path, vars(self) | {name: dict(getattr(self, name).most_common()) for name in COUNTERS})

    @staticmethod
    def of(data: dict[str, Any]) -> Record:
        """The record that `write` wrote, or the beginning of one."""
        return Record(**data | {name: Counter(data.get(name, {})) for name in COUNTERS})


def summary(record: Record) -> str:
    """One line.

    >>> summary(Record(seed=0, code="", provenance={}))
    '0 kills, 0 inside a write, 0 survived; 0 of 0 resumed runs ended the same; 0 failures; 0 s'
    """
    inside = record.kills - record.kills_while_writing[BETWEEN]
    return (
        f"{record.kills} kills, {inside} inside a write, {record.survived} survived; "
        f"{record.resumed_the_same} of {record.resumed} resumed runs ended the same; "
        f"{len(record.failures)} failures; {record.seconds:.0f} s"
    )
