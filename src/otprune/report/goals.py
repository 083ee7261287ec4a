"""Beyond the paper: what the recipe `best` is to reach, and what it reaches."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otprune.experiments import paper
from otprune.experiments.paper import Goal, Spread
from otprune.experiments.reproduce.needed import BEST
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import towards
from otprune.report.choosing import chosen_by
from otprune.report.markdown import NONE, markdown_table, percent, spread_text
from otprune.report.points import counted, spread, subject
from otprune.report.verdicts import Claim, Verdict, listed

INTRODUCTION = (
    "The same networks on the same data, trained by the recipe "
    "[best](../src/otprune/experiments/recipes/best.toml) instead of the paper's. A goal is reached where the mean "
    "accuracy over all seeds is, and no seed costs more."
)
STAGES = {"finetuned": "fine-tuned", "recalibrated": "recalibrated, not fine-tuned"}  # the last one first


@dataclass(frozen=True)
class Attempt:
    """A goal and what was measured for it so far, one mapping for each seed."""

    goal: Goal
    found: tuple[Mapping[str, Any], ...]
    seeds: int

    @property
    def stage(self) -> str:
        """The last stage that every seed has come to, which is what they are judged by."""
        return next(stage for stage in STAGES if all(f"accuracy_{stage}" in one for one in self.found))

    @property
    def accuracy(self) -> Spread | None:
        """In percent, over the seeds that there are."""
        return spread(100 * one[f"accuracy_{self.stage}"] for one in self.found) if self.found else None

    @property
    def verdict(self) -> Verdict:
        """Nothing is said before every seed is there."""
        if self.accuracy is None or len(self.found) < self.seeds:
            return Verdict.OPEN
        limits = {"flops": self.goal.flops, "parameters": self.goal.parameters}
        small = all(one["cost_after"][kind] <= most for one in self.found for kind, most in limits.items())
        return Verdict.of([small and self.accuracy.mean >= self.goal.accuracy])

    def costs(self, kind: str) -> str:
        """Of each seed, in millions."""
        return ", ".join(f"{one['cost_after'][kind] / 1e6:.2f}" for one in self.found) or NONE


def attempts(records: Records) -> list[Attempt]:
    """Every goal with what is recorded for it.

    >>> from pathlib import Path
    >>> [attempt.verdict.value for attempt in attempts(Records(Path("nowhere")))]
    ['not yet measured', 'not yet measured', 'not yet measured']
    """
    return [_attempt(records, goal) for goal in paper.goals()]


def goals(records: Records) -> Iterator[str]:
    """The goals, what the paper has and what was measured here, and the runs that the recipe was chosen by.

    >>> from pathlib import Path
    >>> list(goals(Records(Path("nowhere"))))[-1]
    'Which runs the recipe was chosen by is not yet recorded.'
    """
    costs = ("FLOPs (M) of each seed", "params (M) of each seed")
    header = ("network", "goal", "paper", "reached", "judged", "accuracy (%), here", *costs, "seeds")
    yield INTRODUCTION
    yield markdown_table(header, [_goal_row(attempt) for attempt in attempts(records)], texts=5)
    yield from chosen_by(records)


def goals_are_reached(records: Records) -> Claim:
    """All goals whose seeds are all recorded.

    >>> from pathlib import Path
    >>> goals_are_reached(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    everything = attempts(records)
    measured = [attempt for attempt in everything if attempt.verdict is not Verdict.OPEN]
    judged = {_name(one.goal): one.verdict is Verdict.HOLDS for one in measured}
    evidence = [_evidence(attempt) for attempt in everything] if measured else []
    text = "New: trained by the recipe `best`, the same networks reach every goal set beyond the paper."
    asked = tuple(_name(attempt.goal) for attempt in everything)
    return Claim("New: recipe best reaches goals beyond the paper", text, judged, listed(evidence), BEST, asked)


def _attempt(records: Records, goal: Goal) -> Attempt:
    needs = towards(goal)
    done = [record.results for needed in needs if (record := records.find(needed))]
    return Attempt(goal, tuple(done), len(needs))


def _evidence(attempt: Attempt) -> str:
    name = _name(attempt.goal)
    if not attempt.found:
        return f"{name}: {Verdict.OPEN.value}"
    so_far = f"{_seeds(attempt)} seeds so far, " if attempt.verdict is Verdict.OPEN else ""
    told = f"{_accuracy(attempt)} % ({STAGES[attempt.stage]}; {_as_accurate(attempt)})"
    return f"{name}: {so_far}{told}, {_asked(attempt.goal)}"


def _as_accurate(attempt: Attempt) -> str:
    """How many seeds would reach it by themselves: a mean may be over by chance."""
    accuracies = [100 * one[f"accuracy_{attempt.stage}"] for one in attempt.found]
    return (
        f"{sum(one >= attempt.goal.accuracy for one in accuracies)} of {counted(len(accuracies), 'seed')} as accurate"
    )


def _goal_row(attempt: Attempt) -> list[str]:
    goal, theirs = attempt.goal, attempt.goal.paper
    reported = f"{percent(theirs['accuracy'])}, {_cost(theirs['flops'], theirs['parameters'])}"
    costs = [attempt.costs(kind) for kind in ("flops", "parameters")]
    judged = STAGES[attempt.stage] if attempt.found else NONE
    said = [_name(goal), _asked(goal), reported, _reached(attempt), judged, _accuracy(attempt)]
    return [*said, *costs, _seeds(attempt)]


def _reached(attempt: Attempt) -> str:
    known = {Verdict.HOLDS: "**yes**", Verdict.FAILS: "**no**"}
    return known.get(attempt.verdict, "seeds are missing" if attempt.found else Verdict.OPEN.value)


def _seeds(attempt: Attempt) -> str:
    return f"{len(attempt.found)} of {attempt.seeds}"


def _name(goal: Goal) -> str:
    return subject(goal.data, goal.model)


def _accuracy(attempt: Attempt) -> str:
    return NONE if attempt.accuracy is None else spread_text(attempt.accuracy)


def _asked(goal: Goal) -> str:
    return f"at least {percent(goal.accuracy)} with at most {_cost(goal.flops, goal.parameters)}"


def _cost(flops: float, parameters: float) -> str:
    text = f"{flops / 1e6:.0f}M FLOPs"
    return text if math.isinf(parameters) else f"{text} and {parameters / 1e6:.2f}M parameters"
