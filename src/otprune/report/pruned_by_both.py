"""Seeds of VGG-14 that OT and Network Slimming both pruned, from one training with one λ; what claims say of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.chance import ENOUGH
from otprune.report.columns import MODEL
from otprune.report.points import DATA_NAMES, subject
from otprune.report.verdicts import Claim, averaged, by_chance, listed

ROW = "statistics"
Both = tuple[Mapping[str, Any], Mapping[str, Any]]
"""What was measured of a seed: by OT, and by Network Slimming."""
ASKED = tuple(subject(data, MODEL) for data in DATA_NAMES)


def pruned_by_both(records: Records) -> dict[str, list[Both]]:
    """The seeds of which one training is recorded as pruned by both, for each data set that has some.

    >>> from pathlib import Path
    >>> pruned_by_both(Records(Path("nowhere")))
    {}
    """
    found = {data: list(_of_both(records, data)) for data in DATA_NAMES}
    return {data: those for data, those in found.items() if those}


def judged(seeds: Mapping[str, Sequence[Any]], holds: Mapping[str, bool | None]) -> dict[str, bool | None]:
    """Whether a claim holds by the seeds of each data set, which a few of them cannot tell.

    >>> judged({"cifar10": [1, 2, 3], "cifar100": [1]}, {"cifar10": True, "cifar100": True})
    {'VGG-14 on CIFAR-10': True, 'VGG-14 on CIFAR-100': None}
    """
    return {subject(data, MODEL): told if len(seeds[data]) >= ENOUGH else None for data, told in holds.items()}


def too_few(seeds: Sequence[Any]) -> str:
    """Words to add where so many do not tell.

    >>> too_few([1, 2]), too_few([1, 2, 3])
    ('; fewer than 3 are not judged', '')
    """
    return "" if len(seeds) >= ENOUGH else f"; fewer than {ENOUGH} are not judged"


def on_average(
    name: str,
    text: str,
    gains: Mapping[str, Sequence[float]],
    holds: Callable[[str, Sequence[float]], bool | None],
    paper: Callable[[str], str] = lambda data: "",
) -> Claim:
    """A claim about the mean of what is gained with each seed; `paper` are words on what it has there.

    >>> claim = on_average("fish swim", "Fish swim.", {"cifar10": [1.0, 1.0, 1.0]}, lambda data, gains: min(gains) > 0)
    >>> claim.verdict.value, claim.evidence
    ('holds', 'CIFAR-10: +1.00 points on average of 3 seeds (+1.00 to +1.00)')
    """
    evidence = [
        f"{DATA_NAMES[data]}: {averaged(one, 'seed')}{by_chance(one)}{paper(data)}{too_few(one)}"
        for data, one in gains.items()
    ]
    told = judged(gains, {data: holds(data, one) for data, one in gains.items()})
    return Claim(name, text, told, listed(evidence), ROW, ASKED)


def _of_both(records: Records, data: str) -> Iterator[Both]:
    for needs in zip(seeds(data, "ot"), seeds(data, "ns"), strict=True):
        found = [record.results for needed in needs if (record := records.find(needed)) and not records.lacks(needed)]
        there = [results for results in found if "layers" in results]
        if len(there) == len(needs) and len({one.get("accuracy_sparse") for one in there}) == 1:
            yield there[0], there[1]
