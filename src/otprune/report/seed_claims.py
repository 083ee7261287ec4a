"""Claims about the statistics over seeds: each seed of OT beside the same of Network Slimming, with one λ for both."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from otprune.experiments import paper
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds
from otprune.report.chance import ENOUGH, above, leans
from otprune.report.columns import MODEL
from otprune.report.points import DATA_NAMES, counted, emptied_layers, pruned_share, subject
from otprune.report.verdicts import ROUNDING, Claim, averaged, by_chance, listed

ROW = "statistics"
Both = tuple[Mapping[str, Any], Mapping[str, Any]]
"""What was measured of a seed: by OT, and by Network Slimming."""


def cheaper_over_seeds(records: Records) -> Claim:
    """Where OT keeps no more channels than NS on average, to within a percent, which is what the paper has of both.

    >>> from pathlib import Path
    >>> cheaper_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Over the seeds, with the same channels or fewer, OT's VGG-14 has fewer FLOPs than NS's."
    found = _found(records)
    shares = {data: [100 * _flops(both) for both in those] for data, those in found.items()}
    fewer = {data: leans([100 - share for share in one]) for data, one in shares.items()}
    judged = _judged(found, {data: fewer[data] if _is_fair(those) else None for data, those in found.items()})
    evidence = [
        f"{DATA_NAMES[data]}: {fmean(shares[data]):.1f} % of NS's FLOPs with {_told(those)}"
        for data, those in found.items()
    ]
    return Claim("same λ, over seeds: OT has fewer FLOPs than NS", text, judged, listed(evidence), ROW, _asked())


def better_over_seeds(records: Records) -> Claim:
    """More accurate on average over the seeds.

    >>> from pathlib import Path
    >>> better_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Over the seeds, OT's VGG-14 is more accurate than NS's."
    gains = {data: list(map(_gain, those)) for data, those in _found(records).items()}
    evidence = [
        f"{DATA_NAMES[data]}: {averaged(one, 'seed')}{by_chance(one)}{_too_few(one)}" for data, one in gains.items()
    ]
    judged = _judged(gains, {data: above(one) for data, one in gains.items()})
    return Claim("same λ, over seeds: OT is more accurate than NS", text, judged, listed(evidence), ROW, _asked())


def slimming_breaks_over_seeds(records: Records) -> Claim:
    """New here: the paper has it of NS at a λ of its own.

    >>> from pathlib import Path
    >>> slimming_breaks_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "New: at OT's λ, too, NS empties layers where it prunes more FLOPs than the paper says it can."
    limits = paper.table("points")["slimming_limit"]
    theirs = {data: [slimmed for _, slimmed in those] for data, those in _found(records).items()}
    past = {data: [one for one in those if _pruned(one) > 100 * limits[data]] for data, those in theirs.items()}
    broken = {data: sum(emptied_layers(one) > 0 for one in those) for data, those in past.items() if those}
    evidence = [
        f"{DATA_NAMES[data]}: {fmean(map(_pruned, past[data])):.1f} % of the FLOPs gone, layers emptied in {number} of "
        f"{counted(len(past[data]), 'seed')}{_too_few(past[data])}"
        for data, number in broken.items()
    ]
    judged = _judged(past, {data: number == len(past[data]) for data, number in broken.items()})
    return Claim(
        "New: at OT's λ, too, NS empties layers past these limits", text, judged, listed(evidence), ROW, _asked()
    )


def less_damage_over_seeds(records: Records) -> Claim:
    """New here: the paper compares the damage with that of NS at a λ of its own.

    >>> from pathlib import Path
    >>> less_damage_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "New: at the same λ, too, OT damages VGG-14 less than NS does without any training."
    told = {data: list(filter(_tell_damage, those)) for data, those in _found(records).items()}
    damages = {data: [tuple(map(_damage, both)) for both in those] for data, those in told.items() if those}
    saved = {data: [theirs - ours for ours, theirs in those] for data, those in damages.items()}
    evidence = [f"{DATA_NAMES[data]}: {_losses(those)}{_too_few(those)}" for data, those in damages.items()]
    judged = _judged(damages, {data: above(one) for data, one in saved.items()})
    return Claim("New: at the same λ, too, OT does less damage than NS", text, judged, listed(evidence), ROW, _asked())


def _judged(seeds: Mapping[str, Sequence[Any]], holds: Mapping[str, bool | None]) -> dict[str, bool | None]:
    """Whether a claim holds by the seeds of each data set, which a few of them cannot tell."""
    return {subject(data, MODEL): told if len(seeds[data]) >= ENOUGH else None for data, told in holds.items()}


def _asked() -> tuple[str, ...]:
    return tuple(subject(data, MODEL) for data in DATA_NAMES)


def _found(records: Records) -> dict[str, list[Both]]:
    """The seeds of which one training is recorded as pruned by both, for each data set that has some."""
    found = {data: list(_of_both(records, data)) for data in DATA_NAMES}
    return {data: those for data, those in found.items() if those}


def _of_both(records: Records, data: str) -> Iterator[Both]:
    for needs in zip(seeds(data, "ot"), seeds(data, "ns"), strict=True):
        found = [record.results for needed in needs if (record := records.find(needed)) and not records.lacks(needed)]
        there = [results for results in found if "layers" in results]
        if len(there) == len(needs) and len({one.get("accuracy_sparse") for one in there}) == 1:
            yield there[0], there[1]


def _flops(both: Both) -> float:
    ours, theirs = (float(one["cost_after"]["flops"]) for one in both)
    return ours / theirs


def _gain(both: Both) -> float:
    ours, theirs = (100 * float(one["accuracy_finetuned"]) for one in both)
    return ours - theirs


def _pruned(one: Mapping[str, Any]) -> float:
    return pruned_share(one, "flops")


def _tell_damage(both: Both) -> bool:
    """Older records may not."""
    return all(name in one for one in both for name in ("accuracy_sparse", "accuracy_pruned"))


def _damage(one: Mapping[str, Any]) -> float:
    """Points of accuracy that pruning alone costs."""
    return 100 * (float(one["accuracy_sparse"]) - float(one["accuracy_pruned"]))


def _losses(damages: Sequence[tuple[float, ...]]) -> str:
    ours, theirs = zip(*damages, strict=True)
    saved = [lost - own for own, lost in damages]
    told = f"OT loses {_middle_and_worst(ours)}, NS {_middle_and_worst(theirs)}"
    less = f"{abs(fmean(saved)):.2f} points {'less' if fmean(saved) > 0 else 'more'}"
    return f"{told}, OT {less} on average of {counted(len(saved), 'seed')}{by_chance(saved)}"


def _middle_and_worst(damages: Sequence[float]) -> str:
    """Both, since one seed may lose far more than all others."""
    return f"{median(damages):.2f} points in the median, {max(damages):.2f} at worst"


def _channels(those: list[Both]) -> tuple[float, float]:
    """How many are left on average, by OT and by NS."""
    left = [[sum(layer["kept"] for layer in one["layers"]) for one in both] for both in those]
    ours, theirs = map(fmean, zip(*left, strict=True))
    return ours, theirs


def _is_fair(those: list[Both]) -> bool:
    ours, theirs = _channels(those)
    return ours <= ROUNDING * theirs


def _told(those: list[Both]) -> str:
    ours, theirs = _channels(those)
    told = f"{ours:,.0f} channels against {theirs:,.0f}, over {counted(len(those), 'seed')}"
    return f"{told}{_too_few(those)}" if _is_fair(those) else f"{told}; with more channels it is not judged"


def _too_few(seeds: Sequence[Any]) -> str:
    return "" if len(seeds) >= ENOUGH else f"; fewer than {ENOUGH} are not judged"
