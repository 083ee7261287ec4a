"""Claims about the sweeps: OT at every λ against Network Slimming at every ratio, for each network and its data."""

from collections.abc import Callable, Sequence
from statistics import fmean

from otprune.report.costs import Pair
from otprune.report.margins import gaps, margins, placed
from otprune.report.points import subject
from otprune.report.verdicts import CLOSE, HIGH_SPARSITY, Claim, Verdict, averages, listed, on_average_above


def above_slimming(pairs: Sequence[Pair]) -> Claim:
    """Fine-tuned, at each of NS's networks past half of the FLOPs.

    >>> above_slimming([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "finetuned", HIGH_SPARSITY)
    text = f"OT is more accurate than NS at high sparsity: from {HIGH_SPARSITY:g} % of the FLOPs pruned on, fine-tuned."
    return Claim(text, on_average_above(found), averages(found), "accuracy-vs-cost")


def above_slimming_from_scratch(pairs: Sequence[Pair]) -> Claim:
    """The same, trained from scratch.

    >>> above_slimming_from_scratch([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "scratch", HIGH_SPARSITY)
    text = "OT's architectures are better than NS's at high sparsity, too: the same, trained from scratch."
    return Claim(text, on_average_above(found), averages(found), "accuracy-vs-cost")


def one_epoch_is_enough(pairs: Sequence[Pair]) -> Claim:
    """What OT gains after the first epoch of fine-tuning.

    >>> one_epoch_is_enough([]).verdict.value
    'not yet measured'
    """
    found = {_name(p): one for p in pairs if (one := gaps(p.ot, "finetuned", "finetuned_1"))}
    text = f"One epoch of fine-tuning is enough for OT: 39 more gain at most {CLOSE:g} points on average."
    return Claim(text, Verdict.of([fmean(one) <= CLOSE for one in found.values()]), averages(found), "accuracy-vs-cost")


def one_epoch_is_not_enough_for_slimming(pairs: Sequence[Pair]) -> Claim:
    """What NS gains after the first epoch, beside OT.

    >>> one_epoch_is_not_enough_for_slimming([]).verdict.value
    'not yet measured'
    """
    found = {_name(p): one for p in pairs if (one := gaps(p.ns, "finetuned", "finetuned_1"))}
    ours = {_name(p): gaps(p.ot, "finetuned", "finetuned_1") or [0.0] for p in pairs}
    judged = [fmean(one) > fmean(ours[name]) for name, one in found.items()]
    text = "NS needs the other 39 epochs more than OT does."
    return Claim(text, Verdict.of(judged), averages(found), "accuracy-vs-cost")


def scratch_above_finetuned(pairs: Sequence[Pair]) -> Claim:
    """By the mean over OT's networks; DenseNet is the exception.

    >>> scratch_above_finetuned([]).verdict.value
    'not yet measured'
    """
    found = [(p, one) for p in pairs if (one := gaps(p.ot, "scratch", "finetuned"))]
    judged = [abs(fmean(one)) < CLOSE if p.model == "densenet121" else fmean(one) > 0 for p, one in found]
    text = "Trained from scratch, OT's networks are more accurate than fine-tuned, except DenseNet's, which are alike."
    return Claim(text, Verdict.of(judged), averages({_name(p): one for p, one in found}), "accuracy-vs-cost")


def less_damage(pairs: Sequence[Pair]) -> Claim:
    """As pruned, without any training, at each of NS's networks in OT's range.

    >>> less_damage([]).verdict.value
    'not yet measured'
    """
    found = _margins(pairs, "pruned", 0.0)
    text = "Without any training, OT damages a network less than NS does."
    return Claim(text, on_average_above(found), averages(found), "without-training")


def lossless(pairs: Sequence[Pair]) -> Claim:
    """New here: the statistics re-estimated on training images, no training.

    >>> lossless([]).verdict.value
    'not yet measured'
    """
    found = {_name(p): one for p in pairs if (one := gaps(p.ot, "recalibrated", "sparse"))}
    before = {_name(p): min(gaps(p.ot, "pruned", "sparse"), default=0.0) for p in pairs}
    evidence = [
        f"{name}: {min(one):+.2f} points at worst; as pruned {before[name]:+.2f}" for name, one in found.items()
    ]
    text = f"New: recalibrated, without any training, OT loses at most {CLOSE:g} points."
    return Claim(text, Verdict.of([min(one) >= -CLOSE for one in found.values()]), listed(evidence), "without-training")


SWEEP_CLAIMS: tuple[Callable[[Sequence[Pair]], Claim], ...] = (
    above_slimming,
    above_slimming_from_scratch,
    one_epoch_is_enough,
    one_epoch_is_not_enough_for_slimming,
    scratch_above_finetuned,
    less_damage,
    lossless,
)


def _margins(pairs: Sequence[Pair], stage: str, least: float) -> dict[str, list[float]]:
    found = {_name(p): margins(placed(p.ot, stage), placed(p.ns, stage), least) for p in pairs}
    return {name: values for name, values in found.items() if values}


def _name(found: Pair) -> str:
    return subject(found.data, found.model)
