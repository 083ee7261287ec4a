"""Claims about OT's own networks at every λ: what fine-tuning, training from scratch and recalibration make of them."""

from collections.abc import Callable, Sequence

from otprune.report.chance import ALONE, CLOSE, above, alike, at_most
from otprune.report.costs import Pair, asked
from otprune.report.margins import gaps
from otprune.report.points import counted
from otprune.report.verdicts import HIGH_SPARSITY, Claim, averaged, averages, by_chance, give_or_take, listed

ROW = "accuracy-vs-cost"
TRAINED = {"scratch": "from scratch", "finetuned": "fine-tuned"}


def one_epoch_is_enough(pairs: Sequence[Pair]) -> Claim:
    """What OT gains after the first epoch of fine-tuning, in every run.

    >>> one_epoch_is_enough([]).verdict.value
    'not yet measured'
    """
    found = {p.name: those for p in pairs if (those := _of_each_seed(p, "finetuned", "finetuned_1"))}
    text = f"One epoch of fine-tuning is enough for OT: 39 more gain at most {CLOSE:g} points on average."
    judged = {name: at_most(those, CLOSE) for name, those in found.items()}
    evidence = [
        f"{name}: {averaged(those, 'run')}{give_or_take(those)}{_exceptions(those)}" for name, those in found.items()
    ]
    return Claim("one epoch of fine-tuning is enough for OT", text, judged, listed(evidence), ROW, asked(pairs))


def converged_after_three_epochs(pairs: Sequence[Pair]) -> Claim:
    """What each run gains or loses after the third.

    >>> converged_after_three_epochs([]).verdict.value
    'not yet measured'
    """
    found = {p.name: those for p in pairs if (those := _of_each_seed(p, "finetuned", "finetuned_3"))}
    still = {name: sum(abs(change) <= CLOSE for change in those) for name, those in found.items()}
    text = f"Fine-tuned, OT converges within three epochs for most networks: 37 more change at most {CLOSE:g} points."
    evidence = [f"{name}: {still[name]} of {counted(len(those), 'run')}" for name, those in found.items()]
    judged = {name: 2 * still[name] > len(those) for name, those in found.items()}
    return Claim("OT converges within three epochs, mostly", text, judged, listed(evidence), ROW, asked(pairs))


def scratch_above_finetuned(pairs: Sequence[Pair]) -> Claim:
    """By the mean over OT's networks; DenseNet is the exception.

    >>> scratch_above_finetuned([]).verdict.value
    'not yet measured'
    """
    found = {(p.model, p.name): one for p in pairs if (one := gaps(p.ot, "scratch", "finetuned"))}
    judged = {name: (alike if model == "densenet121" else above)(one) for (model, name), one in found.items()}
    text = "Trained from scratch, OT's networks are more accurate than fine-tuned, except DenseNet's, which are alike."
    evidence = [f"{averages({name: one})}{by_chance(one)}" for (_, name), one in found.items()]
    name = "OT's networks are better from scratch than fine-tuned"
    return Claim(name, text, judged, listed(evidence), ROW, asked(pairs))


def moderate_is_better(pairs: Sequence[Pair]) -> Claim:
    """By the mean over OT's networks with most of their FLOPs; all share the luck of one unpruned network.

    >>> moderate_is_better([]).verdict.value
    'not yet measured'
    """
    text = (
        f"Moderately pruned by OT, with less than {HIGH_SPARSITY:g} % of the FLOPs gone, networks are more accurate "
        "than unpruned: from scratch, or fine-tuned where none was trained from scratch."
    )
    ways = {p.name: {stage: _beside_unpruned(p, stage) for stage in ("scratch", "finetuned")} for p in pairs}
    found = {name: {stage: one for stage, one in both.items() if one} for name, both in ways.items()}
    told = {name: both for name, both in found.items() if both}
    judged = {name: above(next(iter(both.values())), ALONE) for name, both in told.items()}
    evidence = [f"{name}: {' and '.join(map(_told_beside, both, both.values()))}" for name, both in told.items()]
    return Claim("moderately pruned by OT, networks gain accuracy", text, judged, listed(evidence), ROW, asked(pairs))


def lossless(pairs: Sequence[Pair]) -> Claim:
    """New here: the statistics re-estimated on training images, no training. Every seed of every network counts.

    >>> lossless([]).verdict.value
    'not yet measured'
    """
    found, before = ({p.name: _of_each_seed(p, stage, "sparse") for p in pairs} for stage in ("recalibrated", "pruned"))
    told = {name: those for name, those in found.items() if those}
    evidence = [
        f"{name}: {min(one):+.2f} points at worst, over {CLOSE:g} lost by {sum(value < -CLOSE for value in one)} of "
        f"{counted(len(one), 'run')}; as pruned {min(before[name], default=0.0):+.2f}"
        for name, one in told.items()
    ]
    text = f"New: recalibrated, without any training, OT loses at most {CLOSE:g} points."
    judged = {name: min(one) >= -CLOSE for name, one in told.items()}
    name = f"New: recalibrated, not fine-tuned, OT loses at most {CLOSE:g} points"
    return Claim(name, text, judged, listed(evidence), "without-training", asked(pairs))


SWEEP_CLAIMS: tuple[Callable[[Sequence[Pair]], Claim], ...] = (
    one_epoch_is_enough,
    converged_after_three_epochs,
    scratch_above_finetuned,
    moderate_is_better,
    lossless,
)


def _beside_unpruned(found: Pair, stage: str) -> list[float]:
    there = [point for point in found.ot if point.seeds(stage) and point.cost("flops", stage).mean < HIGH_SPARSITY]
    return [] if found.baseline is None else [point.accuracy(stage).mean - found.baseline for point in there]


def _told_beside(stage: str, gains: Sequence[float]) -> str:
    return f"{averaged(gains)} {TRAINED[stage]}{by_chance(gains, ALONE)}"


def _exceptions(gains: Sequence[float]) -> str:
    """Words on those that gain more than is little, which an average does not show."""
    over = sum(gain > CLOSE for gain in gains)
    return f", over {CLOSE:g} in {over}" if over else ""


def _of_each_seed(found: Pair, later: str, earlier: str) -> list[float]:
    return [gain for point in found.ot for gain in point.gains(later, earlier)]
