"""Claims about the sweeps: OT at every λ against Network Slimming at every ratio, for each network and its data.

Network Slimming trains with a λ of its own there, as in the paper. How it does with OT's is told by claims over seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from otprune.experiments import paper
from otprune.report.costs import Pair
from otprune.report.margins import gaps, margins, placed
from otprune.report.points import CLASSES, Point, counted, subject
from otprune.report.verdicts import CLOSE, HIGH_SPARSITY, Claim, averages, listed, on_average_above

ROW = "accuracy-vs-cost"
GUESSING = 150.0  # percent, over the number of classes


def above_slimming(pairs: Sequence[Pair]) -> Claim:
    """Fine-tuned, at each of NS's networks past half of the FLOPs.

    >>> above_slimming([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "finetuned", HIGH_SPARSITY)
    evidence = _with_what_breaks(found, pairs, "finetuned", HIGH_SPARSITY)
    text = (
        f"OT is more accurate than NS at NS's own λ at high sparsity: from {HIGH_SPARSITY:g} % of the FLOPs pruned on, "
        "fine-tuned."
    )
    name = f"OT is more accurate than NS, {HIGH_SPARSITY:g} % of the FLOPs pruned or more"
    return Claim(name, text, on_average_above(found), evidence, ROW, _asked(pairs))


def above_slimming_from_scratch(pairs: Sequence[Pair]) -> Claim:
    """The same, trained from scratch.

    >>> above_slimming_from_scratch([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "scratch", HIGH_SPARSITY)
    evidence = _with_what_breaks(found, pairs, "scratch", HIGH_SPARSITY)
    text = "OT's architectures are better than NS's at high sparsity, too: the same, trained from scratch."
    return Claim(
        "the same, pruned networks trained from scratch", text, on_average_above(found), evidence, ROW, _asked(pairs)
    )


def above_slimming_by_parameters(pairs: Sequence[Pair]) -> Claim:
    """At most of NS's networks, wherever they lie.

    >>> above_slimming_by_parameters([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "finetuned", 0.0, "parameters")
    ahead = {name: sum(value > 0 for value in values) for name, values in found.items()}
    judged = {name: 2 * ahead[name] > len(values) for name, values in found.items()}
    ways = {name: f"ahead at {ahead[name]}" for name in found}
    evidence = _with_what_breaks(found, pairs, "finetuned", 0.0, "parameters", ways)
    text = "In most cases OT is more accurate than NS at NS's own λ with as many parameters pruned, fine-tuned."
    return Claim(
        "OT is more accurate than NS with as many parameters pruned", text, judged, evidence, ROW, _asked(pairs)
    )


def slimming_breaks(pairs: Sequence[Pair]) -> Claim:
    """Up to the paper's limit no layer is emptied, and past it every network has such layers.

    >>> slimming_breaks([]).verdict.value
    'not yet measured'
    """
    limits = {subject(data, "vgg14"): 100 * share for data, share in paper.table("points")["slimming_limit"].items()}
    there = {_name(p): [(one.cost("flops").mean, one.emptied) for one in p.ns] for p in pairs}
    found = {name: there[name] for name in limits if there.get(name)}
    judged = {
        name: all((emptied > 0) == (flops > limits[name]) for flops, emptied in those) for name, those in found.items()
    }
    evidence = [f"{name}: {_how_far(networks)}" for name, networks in found.items()]
    stated = ", ".join(f"{limit:g} % of {name}" for name, limit in limits.items())
    text = f"NS can prune no more FLOPs than {stated}: whole layers would go. At NS's own λ."
    return Claim("past the paper's limits, NS empties whole layers", text, judged, listed(evidence), ROW, tuple(limits))


def one_epoch_is_enough(pairs: Sequence[Pair]) -> Claim:
    """What OT gains after the first epoch of fine-tuning.

    >>> one_epoch_is_enough([]).verdict.value
    'not yet measured'
    """
    found = {_name(p): one for p in pairs if (one := gaps(p.ot, "finetuned", "finetuned_1"))}
    text = f"One epoch of fine-tuning is enough for OT: 39 more gain at most {CLOSE:g} points on average."
    judged = {name: fmean(one) <= CLOSE for name, one in found.items()}
    return Claim("one epoch of fine-tuning is enough for OT", text, judged, averages(found), ROW, _asked(pairs))


def one_epoch_is_not_enough_for_slimming(pairs: Sequence[Pair]) -> Claim:
    """What NS gains after the first epoch, beside OT.

    >>> one_epoch_is_not_enough_for_slimming([]).verdict.value
    'not yet measured'
    """
    dead = {_name(p): [point for point in p.ns if _is_dead(p, point)] for p in pairs}
    alive = {_name(p): [point for point in p.ns if point not in dead[_name(p)]] for p in pairs}
    gained = {_name(p): [gaps(one, "finetuned", "finetuned_1") for one in (alive[_name(p)], p.ot)] for p in pairs}
    found = {name: both for name, both in gained.items() if all(both)}
    judged = {name: fmean(theirs) > fmean(ours) for name, (theirs, ours) in found.items()}
    evidence = [
        f"{averages({name: theirs})}; OT {fmean(ours):+.2f}{_left_out(dead[name])}"
        for name, (theirs, ours) in found.items()
    ]
    text = "NS needs the other 39 epochs more than OT does."
    return Claim(
        "NS needs further epochs of fine-tuning more than OT", text, judged, listed(evidence), ROW, _asked(pairs)
    )


def scratch_above_finetuned(pairs: Sequence[Pair]) -> Claim:
    """By the mean over OT's networks; DenseNet is the exception.

    >>> scratch_above_finetuned([]).verdict.value
    'not yet measured'
    """
    found = [(p, one) for p in pairs if (one := gaps(p.ot, "scratch", "finetuned"))]
    judged = {_name(p): abs(fmean(one)) < CLOSE if p.model == "densenet121" else fmean(one) > 0 for p, one in found}
    text = "Trained from scratch, OT's networks are more accurate than fine-tuned, except DenseNet's, which are alike."
    evidence = averages({_name(p): one for p, one in found})
    return Claim("OT's networks are better from scratch than fine-tuned", text, judged, evidence, ROW, _asked(pairs))


def less_damage(pairs: Sequence[Pair]) -> Claim:
    """As pruned, without any training, at each of NS's networks in OT's range.

    >>> less_damage([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "pruned", 0.0)
    text = "Without any training, OT damages a network less than NS does at its own λ."
    judged, row = on_average_above(found), "without-training"
    evidence = _with_what_breaks(found, pairs, "pruned", 0.0)
    return Claim("before any fine-tuning, OT does less damage than NS", text, judged, evidence, row, _asked(pairs))


def lossless(pairs: Sequence[Pair]) -> Claim:
    """New here: the statistics re-estimated on training images, no training. Every seed of every network counts.

    >>> lossless([]).verdict.value
    'not yet measured'
    """
    found = {_name(p): worst for p in pairs if (worst := _worst(p, "recalibrated"))}
    before = {_name(p): min(_worst(p, "pruned"), default=0.0) for p in pairs}
    evidence = [
        f"{name}: {min(one):+.2f} points at worst, over {CLOSE:g} lost by {sum(value < -CLOSE for value in one)} of "
        f"{counted(len(one), 'run')}; as pruned {before[name]:+.2f}"
        for name, one in found.items()
    ]
    text = f"New: recalibrated, without any training, OT loses at most {CLOSE:g} points."
    judged = {name: min(one) >= -CLOSE for name, one in found.items()}
    name = f"New: recalibrated, not fine-tuned, OT loses at most {CLOSE:g} points"
    return Claim(name, text, judged, listed(evidence), "without-training", _asked(pairs))


SWEEP_CLAIMS: tuple[Callable[[Sequence[Pair]], Claim], ...] = (
    above_slimming,
    above_slimming_from_scratch,
    above_slimming_by_parameters,
    slimming_breaks,
    one_epoch_is_enough,
    one_epoch_is_not_enough_for_slimming,
    scratch_above_finetuned,
    less_damage,
    lossless,
)


def _margins(pairs: Sequence[Pair], stage: str, least: float, kind: str = "flops") -> dict[str, list[float]]:
    found = {_name(p): margins(placed(p.ot, stage, kind), placed(p.ns, stage, kind), least) for p in pairs}
    return {name: values for name, values in found.items() if values}


def _with_what_breaks(
    found: Mapping[str, Sequence[float]],
    pairs: Sequence[Pair],
    stage: str,
    least: float,
    kind: str = "flops",
    more: Mapping[str, str] | None = None,
) -> str:
    """The averages, what more there is to say of each, and how many of NS's networks there would have broken."""
    intact = _margins([replace(p, ns=[one for one in p.ns if not one.emptied]) for p in pairs], stage, least, kind)
    parts = []
    for name, values in found.items():
        broken = len(values) - len(intact.get(name, ()))
        told = [averages({name: values}), *([more[name]] if more else [])]
        if broken:
            told.append(f"{_of(broken, len(values))} broken by NS: whole layers emptied but for one channel")
        parts.append(", ".join(told))
    return listed(parts)


def _of(some: int, everything: int) -> str:
    return "all" if some == everything else str(some)


def _is_dead(found: Pair, point: Point) -> bool:
    """Whether it still guesses after it was fine-tuned."""
    return point.seeds("finetuned") > 0 and point.accuracy("finetuned").mean < GUESSING / CLASSES[found.data]


def _left_out(dead: Sequence[Point]) -> str:
    guess, are = ("guesses", "is") if len(dead) == 1 else ("guess", "are")
    return f"; {counted(len(dead), 'network')} of NS that only {guess} {are} left out" if dead else ""


def _how_far(networks: Sequence[tuple[float, float]]) -> str:
    whole = [flops for flops, emptied in networks if not emptied]
    parts = [f"no layer is emptied up to {max(whole):.1f} %"] if whole else []
    return ", ".join(
        [*parts, *(f"{counted(int(emptied), 'layer')} at {flops:.1f} %" for flops, emptied in networks if emptied)]
    )


def _worst(found: Pair, stage: str) -> list[float]:
    return [gain for point in found.ot for gain in point.gains(stage, "sparse")]


def _asked(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return tuple(map(_name, pairs))


def _name(found: Pair) -> str:
    return subject(found.data, found.model)
