"""What the runs that are missing take: epochs of each network, and hours at the speed that was measured of it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from otprune.experiments.experiment import scratch_epochs
from otprune.experiments.iterate import ROUNDS, Restart
from otprune.experiments.reproduce.needed import Kind, Needed, once_each
from otprune.experiments.reproduce.records import SCRATCH_LACKS, Records
from otprune.experiments.reproduce.rows import rows
from otprune.experiments.reproduce.trainings import warm_up, warmed_up_at
from otprune.report.benchmarks import benchmark
from otprune.report.markdown import NONE, markdown_table
from otprune.report.points import subject
from otprune.report.seed_by_seed import IMAGES

HEADER = ("network", "trainings", "fine-tunings", "from scratch", "epochs, at most", "hours of steps")
FOLDER = "train_step"


@dataclass(frozen=True)
class Work:
    """Trainings of one kind, and the epochs of all of them."""

    number: int = 0
    epochs: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.number + other.number, self.epochs + other.epochs)


NOTHING = Work()
MOST = (math.inf, 1)  # FLOPs before and after with which a network is trained from scratch for as long as can be


@dataclass(frozen=True)
class Missing:
    """What a network lacks, by kind of training; the seconds are none where the time of its steps is not known."""

    name: str
    kinds: tuple[Work, ...]
    seconds: float


def to_come(records: Records) -> str:
    """A table of what is missing and what it takes, a row for each network; nothing where nothing is missing.

    Weights are in no record, so what is pruned otherwise from a training that is recorded needs that training again.

    >>> from pathlib import Path
    >>> to_come(Records(Path("nowhere"))).splitlines()[2]
    '| VGG-14 on CIFAR-10 | 38 | 47 | 24 | 15,640 | – |'
    """
    networks: dict[tuple[str, str], list[Needed]] = {}
    for needed in _lacking(records):
        networks.setdefault((needed.experiment.data, needed.experiment.model), []).append(needed)
    found = [_missing(data, model, lacking, records) for (data, model), lacking in networks.items()]
    if len(found) > 1:
        found.append(_all(found))
    return markdown_table(HEADER, map(_line, found)) if found else ""


def _lacking(records: Records) -> Iterable[Needed]:
    """What is missing, once for each record, with all that any table or figure needs of it."""
    return once_each(records.lacking(needed for row in rows().values() for needed in row.needs))


def _missing(data: str, model: str, lacking: Iterable[Needed], records: Records) -> Missing:
    trained, finetuned, fresh = dict[str, Work](), NOTHING, NOTHING
    for needed in lacking:
        fresh += _from_scratch(needed, records)
        if records.lacks(needed) != SCRATCH_LACKS:
            trained[needed.trained_at] = Work(1, needed.experiment.training.epochs)
            trained[f"{needed.place}, later rounds"] = _later_trainings(needed)
            finetuned += _finetunings(needed)
            if needed.kind is Kind.ISTA:
                trained[warmed_up_at(needed)] = Work(1, warm_up(needed.experiment).training.epochs)
    kinds = (sum(trained.values(), NOTHING), finetuned, fresh)
    return Missing(subject(data, model), kinds, _seconds_an_epoch(records, model) * sum(kind.epochs for kind in kinds))


def _all(found: Sequence[Missing]) -> Missing:
    kinds = zip(*(one.kinds for one in found), strict=True)
    return Missing("all", tuple(sum(kind, NOTHING) for kind in kinds), sum(one.seconds for one in found))


def _line(missing: Missing) -> tuple[str, ...]:
    numbers = (f"{kind.number:,}" for kind in missing.kinds)
    hours = NONE if math.isnan(missing.seconds) else f"{missing.seconds / 3600:.1f}"
    return missing.name, *numbers, f"{sum(kind.epochs for kind in missing.kinds):,}", hours


def _later_trainings(needed: Needed) -> Work:
    """Of each round but the first, whose training others share."""
    again = ROUNDS - 1 if needed.kind is Kind.ROUNDS else 0
    return Work(again, again * needed.experiment.training.epochs)


def _finetunings(needed: Needed) -> Work:
    if needed.kind is Kind.BASELINE or needed.restart is Restart.SCRATCH or not needed.finetuned:
        return NOTHING
    number = ROUNDS if needed.kind is Kind.ROUNDS else 1
    return Work(number, number * needed.experiment.finetuning.epochs)


def _from_scratch(needed: Needed, records: Records) -> Work:
    number = ROUNDS if needed.restart is Restart.SCRATCH else int(needed.scratch)
    found = records.find(needed) if records.lacks(needed) == SCRATCH_LACKS else None
    costs = [found.results[name]["flops"] for name in ("cost_before", "cost_after")] if found else MOST
    return Work(number, number * scratch_epochs(needed.experiment.training.epochs, *costs))


def _seconds_an_epoch(records: Records, model: str) -> float:
    """As measured of the unpruned network, trained alone."""
    found = benchmark(records.folder / FOLDER / f"{model}.json", _StepTimes, "the time of training steps")
    if found is None:
        return math.nan
    configuration, net = found["configuration"], found["results"][model]
    return float(math.ceil(IMAGES / configuration["batch"]) * net["ours_ms"] / 1000)


class _Configuration(TypedDict):
    batch: int


class _Net(TypedDict):
    ours_ms: float


class _StepTimes(TypedDict):
    configuration: _Configuration
    results: dict[str, _Net]
