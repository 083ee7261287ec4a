"""Claims about OT against Network Slimming: OT at every λ, NS at every ratio, for each network and its data.

NS trains with a λ of its own there, as in the paper. How it does with OT's is told by claims over seeds. Its ratios are
all of one training, whose luck they share. Networks that it broke, of which whole layers are gone but for one channel,
are told and not judged: the paper has none, and to be ahead of one that only guesses is to be ahead of nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from otprune.report.chance import ALONE, CLOSE, ENOUGH, above, spread_of_one
from otprune.report.costs import Pair, asked
from otprune.report.margins import gaps, margins, placed
from otprune.report.points import Point
from otprune.report.verdicts import HIGH_SPARSITY, Claim, averaged, by_chance, listed

ROW = "accuracy-vs-cost"


@dataclass(frozen=True)
class Margins:
    """How many points OT lies above each of NS's networks, those that NS broke apart."""

    intact: list[float]
    broken: list[float]


def above_slimming(pairs: Sequence[Pair]) -> Claim:
    """Fine-tuned, at each of NS's networks past half of the FLOPs, or at its last one where it breaks before that.

    >>> above_slimming([]).verdict.value
    'not yet measured'
    """
    text = (
        f"OT is more accurate than NS at NS's own λ at high sparsity, fine-tuned: from {HIGH_SPARSITY:g} % of the "
        "FLOPs pruned on, or at NS's last network that is not broken, where that comes before."
    )
    name = "OT is more accurate than NS at NS's own λ, where much is gone"
    return _compared(name, text, pairs, _margins(pairs, "finetuned", HIGH_SPARSITY))


def above_slimming_from_scratch(pairs: Sequence[Pair]) -> Claim:
    """The same, trained from scratch.

    >>> above_slimming_from_scratch([]).verdict.value
    'not yet measured'
    """
    text = "OT's architectures are better than NS's at high sparsity, too: the same, trained from scratch."
    name = "the same, pruned networks trained from scratch"
    return _compared(name, text, pairs, _margins(pairs, "scratch", HIGH_SPARSITY))


def above_slimming_by_parameters(pairs: Sequence[Pair]) -> Claim:
    """At NS's networks that are not broken, wherever they lie.

    >>> above_slimming_by_parameters([]).verdict.value
    'not yet measured'
    """
    text = (
        "OT is more accurate than NS at NS's own λ with as many parameters pruned, fine-tuned, on average of NS's "
        "networks that are not broken."
    )
    name = "OT is more accurate than NS with as many parameters pruned"
    return _compared(name, text, pairs, _margins(pairs, "finetuned", 0.0, "parameters"))


def slimming_needs_more_epochs(pairs: Sequence[Pair]) -> Claim:
    """What NS's networks that are not broken gain after the first epoch of fine-tuning, beside what OT's do.

    >>> slimming_needs_more_epochs([]).verdict.value
    'not yet measured'
    """
    gained = {p.name: [gaps(one, "finetuned", "finetuned_1") for one in (p.intact, p.ot)] for p in pairs}
    found = {name: both for name, both in gained.items() if all(both)}
    judged = {name: above([fmean(theirs) - fmean(ours)], ALONE) for name, (theirs, ours) in found.items()}
    evidence = [
        f"{name}: {averaged(theirs)}, OT {fmean(ours):+.2f}{by_chance([fmean(theirs) - fmean(ours)])}"
        for name, (theirs, ours) in found.items()
    ]
    text = "NS needs the other 39 epochs more than OT does, where it has not broken the network."
    return Claim(
        "NS needs further epochs of fine-tuning more than OT", text, judged, listed(evidence), ROW, asked(pairs)
    )


def less_damage(pairs: Sequence[Pair]) -> Claim:
    """As pruned, without any training, at each of NS's networks in OT's range: behind nowhere, ahead somewhere.

    >>> less_damage([]).verdict.value
    'not yet measured'
    """
    found, spreads = _margins(pairs, "pruned", 0.0), {p.name: _spread_of_damage(p) for p in pairs}
    text = (
        "Without any training, OT damages a network less than NS does at its own λ: somewhere by more than OT's own "
        f"seeds spread, and nowhere more, to within {CLOSE:g} points."
    )
    judged = {name: _is_less(one.intact, spreads[name]) for name, one in found.items()}
    evidence = [f"{name}: {_told_damage(one, spreads[name])}" for name, one in found.items()]
    name = "before any fine-tuning, OT does less damage than NS"
    return Claim(name, text, judged, listed(evidence), "without-training", asked(pairs))


SLIMMING_CLAIMS: tuple[Callable[[Sequence[Pair]], Claim], ...] = (
    above_slimming,
    above_slimming_from_scratch,
    above_slimming_by_parameters,
    slimming_needs_more_epochs,
    less_damage,
)


def _compared(name: str, text: str, pairs: Sequence[Pair], found: Mapping[str, Margins]) -> Claim:
    judged = {where: above(one.intact, ALONE) if one.intact else None for where, one in found.items()}
    evidence = listed([f"{where}: {_told(one)}" for where, one in found.items()])
    return Claim(name, text, judged, evidence, ROW, asked(pairs))


def _spread_of_damage(pair: Pair) -> float:
    """How far a seed of OT may be from others in what pruning alone costs, at the λ where that is most."""
    lost = [point.gains("pruned", "sparse") for point in pair.ot]
    return max((spread_of_one(one) for one in lost if len(one) >= ENOUGH), default=math.inf)


def _is_less(margins: Sequence[float], spread: float) -> bool | None:
    if not margins:
        return None
    if min(margins) < -max(spread, CLOSE) or max(map(abs, margins)) <= CLOSE:
        return False
    return True if max(margins) > max(spread, CLOSE) and min(margins) >= -CLOSE else None


def _told(found: Margins) -> str:
    """The average over networks that are not broken, at how many of them OT is ahead, and the broken ones apart."""
    ahead = sum(value > 0 for value in found.intact)
    told = f"{averaged(found.intact)}{by_chance(found.intact, ALONE)}, ahead at {ahead}" if found.intact else ""
    return _with_broken([told] if told else [], found)


def _told_damage(found: Margins, spread: float) -> str:
    """The median, too, since most may be alike and one be far off."""
    intact = [f"{averaged(found.intact)}, {median(found.intact):+.2f} in the median"] if found.intact else []
    chance = f"its seeds spread by ±{spread:.1f}" if spread < math.inf else "too few seeds to tell how far they spread"
    return f"{_with_broken(intact, found)}; {chance}"


def _with_broken(intact: list[str], found: Margins) -> str:
    broken = averaged(found.broken, "network that NS broke", "networks that NS broke") if found.broken else ""
    return ", and ".join([*intact, *([f"{broken}, not judged"] if broken else [])])


def _margins(pairs: Sequence[Pair], stage: str, least: float, kind: str = "flops") -> dict[str, Margins]:
    """From that share of a cost on, or from NS's last network that is not broken, where that comes before."""

    def of(p: Pair, theirs: Sequence[Point]) -> list[float]:
        last = max((share for share, _ in placed(p.intact, stage, kind)), default=least)
        return margins(placed(p.ot, stage, kind), placed(theirs, stage, kind), min(least, last))

    found = {p.name: Margins(of(p, p.intact), of(p, p.broken)) for p in pairs}
    return {name: one for name, one in found.items() if one.intact or one.broken}
