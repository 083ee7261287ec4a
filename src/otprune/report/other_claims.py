"""Claims about single experiments: rounds, branches, ResNet-20, the headline; and all that are about no sweep."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

from otprune.experiments import paper
from otprune.experiments.iterate import Restart
from otprune.experiments.reproduce.needed import baseline
from otprune.experiments.reproduce.records import Record, Records
from otprune.experiments.reproduce.rows import ista, row, sweep, sweeps_of_resnet20
from otprune.report.chance import ALONE, FOUR, UNKNOWN, above
from otprune.report.edge import faster_with_little_loss, faster_without_loss
from otprune.report.gamma_claims import groups_lie_apart
from otprune.report.goals import goals_are_reached
from otprune.report.headline import headline
from otprune.report.margins import Place, margins, placed, side_by_side
from otprune.report.one_training_claims import ONE_TRAINING_CLAIMS
from otprune.report.points import MODEL_NAMES, VGG, Point, counted, finetuned, points, removed_branches, subject
from otprune.report.same_lambda_claims import less_damage_over_seeds, slimming_needs_more_epochs_over_seeds
from otprune.report.seed_claims import better_over_seeds, cheaper_over_seeds, slimming_breaks_over_seeds
from otprune.report.shift_claims import past_mending, threshold_at_the_edge
from otprune.report.verdicts import FEW, NEW, Claim, averaged, by_chance, listed

RESIDUAL = ("resnet20", "resnet50")
WAYS = {Restart.FINETUNED: "fine-tuned", Restart.SCRATCH: "from scratch"}


def rounds_are_stable(records: Records) -> Claim:
    """After the first round, every further one finds little to remove.

    >>> from pathlib import Path
    >>> rounds_are_stable(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    found = {_restart(one): further for one in _rounds(records, "ot") if (further := _further(one))}
    evidence = [f"{restart}: further rounds take {_percents(shares)}" for restart, shares in found.items()]
    evidence += _not_run(found)
    text = f"Iterative OT is stable: a further round takes less than {100 * FEW:g} % of the FLOPs that are left."
    judged = {VGG: max(map(max, found.values())) < FEW} if found else {}
    return Claim(
        "OT in rounds is stable: further rounds remove little", text, judged, listed(evidence), "iterative", (VGG,)
    )


def one_shot_beats_rounds(records: Records) -> Claim:
    """At each round of NS that lies in the range of OT's sweep; every round goes on from the one before, luck and all.

    >>> from pathlib import Path
    >>> one_shot_beats_rounds(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    line = points(records, sweep("cifar10", "vgg14"))
    measured = {
        _restart(one): margins(placed(line, one.content["restart"]), _places(one)) for one in _rounds(records, "ns")
    }
    found = {name: values for name, values in measured.items() if values}
    text = "OT in one shot is more accurate than NS in rounds."
    told = [above(values, ALONE) for values in found.values()]
    judged = {VGG: False if False in told else None if None in told else True} if found else {}
    evidence = [f"{name}: {averaged(one)}{by_chance(one, ALONE)}" for name, one in found.items()]
    evidence += _not_run(found)
    return Claim(
        "OT in one shot is more accurate than NS in rounds", text, judged, listed(evidence), "iterative", (VGG,)
    )


def branches_go(records: Records) -> Claim:
    """Whole branches of every residual network go at some λ.

    >>> from pathlib import Path
    >>> branches_go(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "Whole branches of residual networks can be removed."
    found = {
        subject(data, model): [removed_branches(one) for one in _sweep(records, data, model) if "removed" in one]
        for data, model in paper.lambdas()
        if model in RESIDUAL
    }
    most = {name: max(one) for name, one in found.items() if one}
    evidence = [f"{name}: of up to {counted(one, 'block')} the whole branch goes" for name, one in most.items()]
    judged = {name: one > 0 for name, one in most.items()}
    return Claim("whole residual branches can be removed", text, judged, listed(evidence), "resnet20", tuple(found))


def loses_less_than_reported(records: Records, way: str = "OT") -> Claim:
    """At each network of either that lies in the range of both, on straight lines between networks.

    The way is what is penalized, which the paper leaves open: a claim for each.

    >>> from pathlib import Path
    >>> loses_less_than_reported(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    theirs = paper.table("points")["ye2018"]
    lost = [theirs["baseline"] - accuracy for accuracy in theirs["accuracy"]]
    places = [(100 * share, points) for share, points in zip(theirs["removed_parameters"], lost, strict=True)]
    text = f"ResNet-20: {way} loses less accuracy than Ye et al. report."
    return _compared_losses(
        f"{way} loses less accuracy than Ye et al. report", text, records, places, way, UNKNOWN * FOUR
    )


def loses_less_than_ista(records: Records, way: str = "OT") -> Claim:
    """The same against the runs of ISTA that were made here.

    >>> from pathlib import Path
    >>> loses_less_than_ista(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    places = _losses(records, finetuned(records, ista()))
    text = f"{NEW}on ResNet-20, {way} loses less accuracy than our own run of ISTA."
    return _compared_losses(
        f"{NEW}{way} loses less than our own run of ISTA", text, records, places, way, UNKNOWN * ALONE
    )


def holds_on_ilsvrc(records: Records) -> Claim:
    """Waits for the images.

    >>> from pathlib import Path
    >>> holds_on_ilsvrc(Records(Path("nowhere"))).verdict.value
    'not yet measured'
    """
    text = "ILSVRC-2012: with fewer FLOPs, OT's VGG-16-BN and PreResNet-50 are more accurate than NS's."
    networks = tuple(f"{MODEL_NAMES[model]} on ILSVRC-2012" for model in paper.table("ilsvrc"))
    return Claim("OT is more accurate than NS on ILSVRC-2012", text, {}, "the images are not here", "ilsvrc", networks)


OTHER_CLAIMS: tuple[Callable[[Records], Claim], ...] = (
    groups_lie_apart,
    threshold_at_the_edge,
    past_mending,
    cheaper_over_seeds,
    better_over_seeds,
    slimming_breaks_over_seeds,
    less_damage_over_seeds,
    slimming_needs_more_epochs_over_seeds,
    *ONE_TRAINING_CLAIMS,
    rounds_are_stable,
    one_shot_beats_rounds,
    branches_go,
    *(
        partial(claim, way=way)
        for way in sweeps_of_resnet20()
        for claim in (loses_less_than_reported, loses_less_than_ista)
    ),
    headline,
    holds_on_ilsvrc,
    faster_without_loss,
    faster_with_little_loss,
    goals_are_reached,
)


def _losses(records: Records, found: Sequence[Point]) -> list[Place]:
    """Pruned parameters and points of accuracy lost; nothing as long as there is no unpruned network."""
    unpruned = records.find(baseline("cifar10", "resnet20"))
    if unpruned is None:
        return []
    full = 100 * unpruned.results["accuracy_sparse"]
    return [(point.cost("parameters", "finetuned").mean, full - point.accuracy("finetuned").mean) for point in found]


def _compared_losses(name: str, text: str, records: Records, theirs: Sequence[Place], way: str, chance: float) -> Claim:
    """Judged where OT reaches as far as theirs; where it does not, what it reaches is told.

    What is penalized is the paper's to say, and it does not: another way is another reading of the same claim. Theirs
    are two networks, which is too few to tell how far they spread, so `chance` does: it is larger where they lose
    against an unpruned network of their own.
    """
    where, line = subject("cifar10", "resnet20"), _losses(records, finetuned(records, sweeps_of_resnet20()[way]))
    again = way != next(iter(sweeps_of_resnet20()))
    if not line or not theirs:
        return Claim(name, text, {}, "", "resnet20", (where,), again)
    both = side_by_side(line, theirs)
    evidence = [f"{share:.1f} % of the parameters: {ours:.2f} points, theirs {lost:.2f}" for share, ours, lost in both]
    saved, most = [lost - ours for _, ours, lost in both], max(share for share, _ in line)
    if not both or most < max(share for share, _ in theirs):
        evidence.append(f"it removes at most {most:.0f} %")
        return Claim(name, text, {where: None}, listed(evidence), "resnet20", (where,), again)
    less = fmean(saved)
    evidence.append(f"{abs(less):.2f} points {'less' if less > 0 else 'more'} on average{by_chance(saved, chance)}")
    return Claim(name, text, {where: above(saved, chance)}, listed(evidence), "resnet20", (where,), again)


def _sweep(records: Records, data: str, model: str) -> Iterator[Mapping[str, Any]]:
    for needed in sweep(data, model):
        if record := records.find(needed):
            yield record.results


def _rounds(records: Records, rule: str) -> Iterator[Record]:
    for needed in row("iterative").needs:
        record = records.find(needed)
        if record is not None and needed.experiment.pruning.rule == rule:
            yield record


def _not_run(found: Mapping[str, Any]) -> list[str]:
    """The ways of the rounds that wait for their runs, where another has been measured."""
    return [f"{way}: not run yet" for way in WAYS.values() if way not in found] if found else []


def _restart(record: Record) -> str:
    return WAYS[record.content["restart"]]


def _places(record: Record) -> list[tuple[float, float]]:
    done = (one for one in record.content["rounds"] if one["accuracy"] is not None)
    return [(100 * (1 - one["flops"]), 100 * one["accuracy"]) for one in done]


def _further(record: Record) -> list[float]:
    """The share of the FLOPs left that each round after the first removes; nothing where there was no further one."""
    left: list[float] = [one["flops"] for one in record.content["rounds"]]
    return [1 - now / before for before, now in pairwise(left)]


def _percents(shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.1f}" for share in shares) + " %"
