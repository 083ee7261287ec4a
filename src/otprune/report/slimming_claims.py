"""Claims about OT against Network Slimming: OT at every λ, NS at every ratio, for each network and its data.

NS trains with a λ of its own there, as in the paper. How it does with OT's is told by claims over seeds. Its ratios are
all of one training, whose luck they share. Networks that it broke are told apart: whole layers of them are gone but for
one channel.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

from otprune.experiments import paper
from otprune.report.chance import CLOSE, above
from otprune.report.costs import Pair, asked
from otprune.report.margins import gaps, margins, placed
from otprune.report.points import counted, subject
from otprune.report.verdicts import HIGH_SPARSITY, Claim, averaged, by_chance, listed

ROW = "accuracy-vs-cost"
Judge = Callable[[Sequence[float]], bool | None]
"""Whether OT is ahead by the margins between it and each of NS's networks."""


def above_slimming(pairs: Sequence[Pair]) -> Claim:
    """Fine-tuned, at each of NS's networks past half of the FLOPs, broken or not.

    >>> above_slimming([]).verdict.value
    'not yet measured'
    """
    text = (
        f"OT is more accurate than NS at NS's own λ at high sparsity: from {HIGH_SPARSITY:g} % of the FLOPs pruned on, "
        "fine-tuned."
    )
    name = f"OT is more accurate than NS, {HIGH_SPARSITY:g} % of the FLOPs pruned or more"
    return _at_high_sparsity(name, text, pairs, "finetuned")


def above_slimming_from_scratch(pairs: Sequence[Pair]) -> Claim:
    """The same, trained from scratch.

    >>> above_slimming_from_scratch([]).verdict.value
    'not yet measured'
    """
    text = "OT's architectures are better than NS's at high sparsity, too: the same, trained from scratch."
    return _at_high_sparsity("the same, pruned networks trained from scratch", text, pairs, "scratch")


def above_slimming_by_parameters(pairs: Sequence[Pair]) -> Claim:
    """At NS's networks that are not broken, wherever they lie: those that are would make up any number of cases.

    >>> above_slimming_by_parameters([]).verdict.value
    'not yet measured'
    """
    everything, intact = (_margins(those, "finetuned", 0.0, "parameters") for those in (pairs, _intact(pairs)))
    judged = {name: above(values, alone=True) for name, values in intact.items()}
    ahead = {name: f", ahead at {sum(value > 0 for value in values)}" for name, values in intact.items()}
    text = (
        "OT is more accurate than NS at NS's own λ with as many parameters pruned, fine-tuned, on average of NS's "
        "networks that are not broken."
    )
    evidence = listed([_told(name, values, everything[name], ahead[name]) for name, values in intact.items()])
    return Claim(
        "OT is more accurate than NS with as many parameters pruned", text, judged, evidence, ROW, asked(pairs)
    )


def slimming_breaks(pairs: Sequence[Pair]) -> Claim:
    """Up to the paper's limit no layer is emptied, and past it every network has such layers.

    >>> slimming_breaks([]).verdict.value
    'not yet measured'
    """
    limits = {subject(data, "vgg14"): 100 * share for data, share in paper.table("points")["slimming_limit"].items()}
    there = {p.name: [(one.cost("flops").mean, one.emptied) for one in p.ns] for p in pairs}
    found = {name: there[name] for name in limits if there.get(name)}
    judged = {
        name: all((emptied > 0) == (flops > limits[name]) for flops, emptied in those) for name, those in found.items()
    }
    evidence = [f"{name}: {_how_far(networks)}" for name, networks in found.items()]
    stated = ", ".join(f"{limit:g} % of {name}" for name, limit in limits.items())
    text = f"NS can prune no more FLOPs than {stated}: whole layers would go. At NS's own λ."
    return Claim("past the paper's limits, NS empties whole layers", text, judged, listed(evidence), ROW, tuple(limits))


def slimming_needs_more_epochs(pairs: Sequence[Pair]) -> Claim:
    """What NS's networks that are not broken gain after the first epoch of fine-tuning, beside what OT's do.

    >>> slimming_needs_more_epochs([]).verdict.value
    'not yet measured'
    """
    gained = {p.name: [gaps(one, "finetuned", "finetuned_1") for one in (p.ns, p.ot)] for p in _intact(pairs)}
    found = {name: both for name, both in gained.items() if all(both)}
    judged = {name: above([fmean(theirs) - fmean(ours)], alone=True) for name, (theirs, ours) in found.items()}
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
    text = (
        f"Without any training, OT damages a network less than NS does at its own λ: by more than {CLOSE:g} points "
        "somewhere, and nowhere more."
    )
    name = "before any fine-tuning, OT does less damage than NS"
    return _compared(name, text, pairs, "pruned", 0.0, _is_behind_nowhere, "without-training", _in_the_median)


SLIMMING_CLAIMS: tuple[Callable[[Sequence[Pair]], Claim], ...] = (
    above_slimming,
    above_slimming_from_scratch,
    above_slimming_by_parameters,
    slimming_breaks,
    slimming_needs_more_epochs,
    less_damage,
)


def _at_high_sparsity(name: str, text: str, pairs: Sequence[Pair], stage: str) -> Claim:
    return _compared(name, text, pairs, stage, HIGH_SPARSITY, _is_ahead, ROW)


def _is_ahead(values: Sequence[float]) -> bool | None:
    return above(values, alone=True)


def _is_behind_nowhere(values: Sequence[float]) -> bool:
    return min(values) >= -CLOSE and max(values) > CLOSE


def _in_the_median(values: Sequence[float]) -> str:
    """Most may be alike, and one be far off."""
    return f", {median(values):+.2f} in the median"


def _compared(
    name: str,
    text: str,
    pairs: Sequence[Pair],
    stage: str,
    least: float,
    judge: Judge,
    row: str,
    more: Callable[[Sequence[float]], str] = lambda values: "",
) -> Claim:
    found, intact = (_margins(those, stage, least) for those in (pairs, _intact(pairs)))
    whole = {where: intact.get(where, []) for where in found}
    evidence = listed(
        [
            _told(where, whole[where], values, more(whole[where]) if whole[where] else "")
            for where, values in found.items()
        ]
    )
    judged = {where: judge(values) for where, values in found.items()}
    return Claim(name, text, judged, evidence, row, asked(pairs))


def _told(name: str, intact: Sequence[float], everything: Sequence[float], more: str = "") -> str:
    """The average over networks that are not broken, what more there is to say of them, and the broken ones apart."""
    broken = list((Counter(everything) - Counter(intact)).elements())
    parts = [f"{averaged(intact)}{by_chance(intact, alone=True)}{more}"] if intact else []
    if broken:
        told = averaged(broken, "network that NS broke", "networks that NS broke")
        parts.append(told if intact else f"{told}{by_chance(broken, alone=True)}")
    return f"{name}: {', and '.join(parts)}"


def _margins(pairs: Sequence[Pair], stage: str, least: float, kind: str = "flops") -> dict[str, list[float]]:
    found = {p.name: margins(placed(p.ot, stage, kind), placed(p.ns, stage, kind), least) for p in pairs}
    return {name: values for name, values in found.items() if values}


def _intact(pairs: Sequence[Pair]) -> list[Pair]:
    return [replace(p, ns=[one for one in p.ns if not one.emptied]) for p in pairs]


def _how_far(networks: Sequence[tuple[float, float]]) -> str:
    whole = [flops for flops, emptied in networks if not emptied]
    parts = [f"no layer is emptied up to {max(whole):.1f} %"] if whole else []
    return ", ".join(
        [*parts, *(f"{counted(int(emptied), 'layer')} at {flops:.1f} %" for flops, emptied in networks if emptied)]
    )
