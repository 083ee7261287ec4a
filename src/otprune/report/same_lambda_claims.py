"""New here: what the paper says of OT against Network Slimming at a λ of its own, asked with the same λ for both."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from otprune.experiments.reproduce.records import Records
from otprune.report.chance import above
from otprune.report.points import DATA_NAMES, counted
from otprune.report.pruned_by_both import ASKED, ROW, Both, judged, on_average, pruned_by_both, too_few
from otprune.report.verdicts import Claim, by_chance, listed


def less_damage_over_seeds(records: Records) -> Claim:
    """By the mean of what pruning alone costs NS and does not cost OT.

    >>> from pathlib import Path
    >>> less_damage_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "New: at the same λ, too, OT damages VGG-14 less than NS does without any training."
    damages = {
        data: [tuple(map(_damage, both)) for both in those]
        for data, those in _telling(records, "accuracy_sparse", "accuracy_pruned").items()
    }
    saved = {data: [theirs - ours for ours, theirs in those] for data, those in damages.items()}
    evidence = [f"{DATA_NAMES[data]}: {_losses(those)}{too_few(those)}" for data, those in damages.items()]
    told = judged(damages, {data: above(one) for data, one in saved.items()})
    return Claim("New: at the same λ, too, OT does less damage than NS", text, told, listed(evidence), ROW, ASKED)


def slimming_needs_more_epochs_over_seeds(records: Records) -> Claim:
    """By the mean of what NS's network gains more than OT's after the first epoch of fine-tuning.

    >>> from pathlib import Path
    >>> slimming_needs_more_epochs_over_seeds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "New: at the same λ, too, NS needs the other 39 epochs more than OT does: how much more it gains by them."
    told = _telling(records, "accuracy_finetuned_1", "accuracy_finetuned")
    more = {data: [_late(theirs) - _late(ours) for ours, theirs in those] for data, those in told.items()}
    name = "New: at the same λ, too, NS needs further epochs more than OT"
    return on_average(name, text, more, lambda data, one: above(one))


def _telling(records: Records, *stages: str) -> dict[str, list[Both]]:
    """Older records may not tell of all stages."""

    def tells(both: Both) -> bool:
        return all(name in one for one in both for name in stages)

    told = {data: list(filter(tells, those)) for data, those in pruned_by_both(records).items()}
    return {data: those for data, those in told.items() if those}


def _late(results: Mapping[str, Any]) -> float:
    """Points of accuracy gained after the first epoch of fine-tuning."""
    return 100 * (float(results["accuracy_finetuned"]) - float(results["accuracy_finetuned_1"]))


def _damage(results: Mapping[str, Any]) -> float:
    """Points of accuracy that pruning alone costs."""
    return 100 * (float(results["accuracy_sparse"]) - float(results["accuracy_pruned"]))


def _losses(damages: Sequence[tuple[float, ...]]) -> str:
    ours, theirs = zip(*damages, strict=True)
    saved = [lost - own for own, lost in damages]
    told = f"OT loses {_middle_and_worst(ours)}, NS {_middle_and_worst(theirs)}"
    less = f"{abs(fmean(saved)):.2f} points {'less' if fmean(saved) > 0 else 'more'}"
    return f"{told}, OT {less} on average of {counted(len(saved), 'seed')}{by_chance(saved)}"


def _middle_and_worst(damages: Sequence[float]) -> str:
    """Both, since one seed may lose far more than all others."""
    return f"{median(damages):.2f} points in the median, {max(damages):.2f} at worst"
