"""Claims about the statistics over seeds: each seed of OT beside the same of Network Slimming."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.columns import MODEL
from otprune.report.points import DATA_NAMES, MODEL_NAMES, counted
from otprune.report.verdicts import Claim, averaged, listed, on_average_above

ROW = "statistics"
Both = tuple[Mapping[str, Any], Mapping[str, Any]]
"""What was measured of a seed: by OT, and by Network Slimming."""


def cheaper_over_seeds(records: Records) -> Claim:
    """Where OT keeps no more channels than NS on average, which is what the paper has of both.

    >>> from pathlib import Path
    >>> cheaper_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Over the seeds, with the same channels or fewer, OT's VGG-14 has fewer FLOPs than NS's."
    found = _found(records)
    shares = {name: fmean(map(_flops, those)) for name, those in found.items()}
    judged = {_on(name): shares[name] < 1 for name, those in found.items() if _is_fair(those)}
    evidence = [
        f"{name}: {100 * shares[name]:.1f} % of NS's FLOPs with {_told(those)}" for name, those in found.items()
    ]
    return Claim("over seeds, OT costs less than NS", text, judged, listed(evidence), ROW, _asked())


def better_over_seeds(records: Records) -> Claim:
    """More accurate on average over the seeds.

    >>> from pathlib import Path
    >>> better_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Over the seeds, OT's VGG-14 is more accurate than NS's."
    gains = {name: list(map(_gain, those)) for name, those in _found(records).items()}
    evidence = [f"{name}: {averaged(one, 'seed')}" for name, one in gains.items()]
    judged = on_average_above({_on(name): one for name, one in gains.items()})
    return Claim("over seeds, OT above NS", text, judged, listed(evidence), ROW, _asked())


def _on(name: str) -> str:
    return f"{MODEL_NAMES[MODEL]} on {name}"


def _asked() -> tuple[str, ...]:
    return tuple(map(_on, DATA_NAMES.values()))


def _found(records: Records) -> dict[str, list[Both]]:
    """The seeds that are recorded of both, for each data set that has some."""
    found = {name: list(_of_both(records, data)) for data, name in DATA_NAMES.items()}
    return {name: those for name, those in found.items() if those}


def _of_both(records: Records, data: str) -> Iterator[Both]:
    for needs in zip(seeds(data, "ot"), seeds(data, "ns"), strict=True):
        found = [record.results for needed in needs if (record := records.find(needed)) and not records.lacks(needed)]
        there = [results for results in found if "layers" in results]
        if len(there) == len(needs):
            yield there[0], there[1]


def _flops(both: Both) -> float:
    ours, theirs = (float(one["cost_after"]["flops"]) for one in both)
    return ours / theirs


def _gain(both: Both) -> float:
    ours, theirs = (100 * float(one["accuracy_finetuned"]) for one in both)
    return ours - theirs


def _channels(those: list[Both]) -> tuple[float, float]:
    """How many are left on average, by OT and by NS."""
    left = [[sum(layer["kept"] for layer in one["layers"]) for one in both] for both in those]
    ours, theirs = map(fmean, zip(*left, strict=True))
    return ours, theirs


def _is_fair(those: list[Both]) -> bool:
    ours, theirs = _channels(those)
    return ours <= theirs


def _told(those: list[Both]) -> str:
    ours, theirs = _channels(those)
    told = f"{ours:,.0f} channels against {theirs:,.0f}, over {counted(len(those), 'seed')}"
    return told if _is_fair(those) else f"{told}; with more channels it is not judged"
