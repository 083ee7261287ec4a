"""A round: one run of a command, killed several times, gone on with, and compared with an undisturbed one."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import looking
from tests.chaos.commands import Usual, begun
from tests.chaos.killing import Moment, Started, drawn
from tests.chaos.naming import generic, names
from tests.chaos.sameness import differences


@dataclass
class Killed:
    """A kill: when it came, and which files were being written then."""

    moment: Moment
    writing: list[str]


@dataclass
class Round:
    """What became of a run."""

    case: str
    kills: list[Killed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    same: bool = False


def disturbed(name: str, usual: Usual, chance: random.Random, kills: int, place: Path) -> Round:
    """Kill a command so many times, unless it ends before, then let it end; its folder stays where a problem is."""
    folder, found = begun(usual.before, place / "run"), Round(name)
    watch = _Watch(usual, folder)
    while len(found.kills) < kills:
        moment = drawn(chance, usual)
        started = Started(usual, folder, place / "err")
        if not started.killed_at(moment):
            break
        found.kills.append(Killed(moment, watch.new_leftovers()))
        found.problems += watch.problems()
    else:
        started = Started(usual, folder, place / "err")
    found.problems += _end(started, place / "err") or watch.problems_at_the_end()
    different = list(differences(folder, usual.folder))
    found.same = not different
    found.problems = [problem.replace(f"{place}/", "") for problem in (*found.problems, *different)]
    if not found.problems:
        shutil.rmtree(folder)
    return found


def _end(started: Started, err: Path) -> list[str]:
    code = started.ended()
    return [] if code == 0 else [f"the command ended with {code}: {err.read_text(encoding='utf-8')}"]


class _Watch:
    """A folder from kill to kill."""

    def __init__(self, usual: Usual, folder: Path) -> None:
        self.usual, self.folder = usual, folder
        self.finished = looking.finished(folder) | looking.exported(folder)
        self.leftovers: set[Path] = set()
        self.marks = looking.marks(folder)

    def new_leftovers(self) -> list[str]:
        """What was being written at the kill just now."""
        return sorted(generic(path.name) for path in looking.leftovers(self.folder) - self.leftovers)

    def problems(self) -> list[str]:
        """What should not be, after a kill; from here on, what is there now is what was there before."""
        found = [*looking.damaged(self.folder), *self._missing(), *self._strange(), *self._left()]
        self.finished |= looking.finished(self.folder)
        self.leftovers, self.marks = looking.leftovers(self.folder), looking.marks(self.folder)
        return found

    def problems_at_the_end(self) -> list[str]:
        """What should not be when the command has come to its end: not even what is only temporary."""
        return [*self.problems(), *(f"{path} was left to the end" for path in self.leftovers)]

    def _missing(self) -> Iterator[str]:
        return (f"{name} was finished and is lost or changed" for name in looking.lost(self.finished, self.folder))

    def _strange(self) -> Iterator[str]:
        return (f"{name} does not belong there" for name in names(self.folder) - names(self.usual.folder))

    def _left(self) -> Iterator[str]:
        changed = looking.changed(self.marks, looking.marks(self.folder))
        return (f"{path} was left" for path in looking.forgotten(self.leftovers, changed))
