"""Verdicts on OT against Network Slimming follow from the records, and no further than chance lets them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds, slimming, sweep
from otprune.report.points import pruned_share
from otprune.report.verdicts import Verdict
from tests import made_records
from tests.judged import emptied, finetuned_by, verdict
from tests.made_records import changed

VGG = "VGG-14 on CIFAR-10"
DAMAGE = "Without any training, OT damages"
ABOVE_SLIMMING = "OT is more accurate than NS at NS's own λ at high sparsity"
BY_PARAMETERS = "OT is more accurate than NS at NS's own λ with as many parameters"


def test_verdicts_follow_the_records(tmp_path: Path) -> None:
    """NS's networks are all of one training: half a point may be the luck of that."""
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), finetuned_by(0))
    for behind, expected in ((1.5, Verdict.HOLDS), (0.5, Verdict.UNDECIDED), (-1.5, Verdict.FAILS)):
        needs = slimming("cifar10", "vgg14")
        made_records.write(tmp_path, needs, finetuned_by(behind))
        for claim in (ABOVE_SLIMMING, BY_PARAMETERS):
            judged, evidence = verdict(Records(tmp_path), claim)
            assert judged is expected and f"{VGG}: {behind:+.2f} points on average of " in evidence
            assert ("which chance may explain (±0.70)" in evidence) is (expected is Verdict.UNDECIDED)
    assert verdict(Records(tmp_path), "OT's architectures")[0] is Verdict.OPEN


def test_networks_that_slimming_broke_are_told_apart_and_do_not_make_up_cases(tmp_path: Path) -> None:
    needs = slimming("cifar10", "vgg14")
    made_records.write(tmp_path, [*sweep("cifar10", "vgg14"), *needs], finetuned_by(0))
    past = [needed for needed in needs if pruned_share(made_records.record(needed)["results"], "flops") > 53]

    def broken(results: dict[str, Any]) -> None:
        emptied(results)
        results.update(accuracy_finetuned=0.1, accuracy_finetuned_1=0.1)

    made_records.write(tmp_path, past, changed(broken))
    judged, evidence = verdict(Records(tmp_path), ABOVE_SLIMMING)
    assert judged is Verdict.UNDECIDED and "networks that NS broke" in evidence and evidence.endswith(", not judged")
    judged, evidence = verdict(Records(tmp_path), BY_PARAMETERS)
    assert judged is Verdict.UNDECIDED and f"{VGG}: +0.00 points" in evidence
    assert "ahead at 0, and +84.00 points" in evidence and evidence.count("that NS broke") == 1
    (last,) = (before for before, after in pairwise(needs) if before not in past and after in past)
    for behind, expected in ((1.5, Verdict.HOLDS), (-1.5, Verdict.FAILS)):  # with less than half of the FLOPs gone
        made_records.write(tmp_path, [last], finetuned_by(behind))
        judged, evidence = verdict(Records(tmp_path), ABOVE_SLIMMING)
        assert judged is expected and f"{VGG}: {behind:+.2f} points, 1 network, ahead at " in evidence


def test_what_fine_tuning_adds_is_compared_where_slimming_broke_nothing(tmp_path: Path) -> None:
    needs = slimming("cifar100", "vgg14")
    made_records.write(tmp_path, [*sweep("cifar100", "vgg14"), *needs], finetuned_by(0))
    slow = changed(lambda found: found.update(accuracy_finetuned=0.94, accuracy_finetuned_1=0.5) or emptied(found))
    made_records.write(tmp_path, needs[-2:], slow)
    judged, evidence = verdict(Records(tmp_path), "NS needs the other")
    assert (
        judged is Verdict.UNDECIDED and "+1.00 points on average of 5 networks" in evidence and "OT +1.00" in evidence
    )
    made_records.write(tmp_path, needs[:5], changed(lambda found: found.update(accuracy_finetuned_1=0.90)))
    assert verdict(Records(tmp_path), "NS needs the other")[0] is Verdict.HOLDS


def damaged(points: float) -> Callable[[Needed], dict[str, Any]]:
    """Makes records of networks that pruning alone damages by so many points more than others."""
    return changed(lambda found: found.update(accuracy_pruned=0.5 - points / 100))


def of_ot(folder: Path, seeds_lose: Sequence[float]) -> None:
    """A sweep of which nothing is damaged but some seeds at one λ."""
    others = [needed for needed in sweep("cifar10", "vgg14") if needed.experiment.training.lam != 2e-4]
    made_records.write(folder, others, damaged(0))
    for needed, points in zip(seeds("cifar10", "ot"), seeds_lose, strict=False):
        made_records.write(folder, [needed], damaged(points))


@pytest.mark.parametrize(
    ("behind", "ahead", "expected"),
    [(0.4, 3.0, Verdict.HOLDS), (0.6, 3.0, Verdict.FAILS), (0.4, 0.4, Verdict.FAILS)],
)
def test_less_damage_is_ahead_somewhere_and_behind_nowhere(
    behind: float, ahead: float, expected: Verdict, tmp_path: Path
) -> None:
    needs = slimming("cifar10", "vgg14")
    of_ot(tmp_path, seeds_lose=(0, 0, 0))
    made_records.write(tmp_path, needs[:-3], damaged(-behind))
    made_records.write(tmp_path, needs[-3:], damaged(ahead))
    assert verdict(Records(tmp_path), DAMAGE)[0] is expected


@pytest.mark.parametrize(
    ("seeds_lose", "theirs", "expected"),
    [
        ((0, 0, 9), (10,), Verdict.UNDECIDED),
        ((0, 0, 9), (40,), Verdict.HOLDS),
        ((0, 0, 9), (-40,), Verdict.FAILS),
        ((0, 0, 9), (40, -5), Verdict.UNDECIDED),  # by chance more damaged than NS's elsewhere
        ((0, 9), (40,), Verdict.UNDECIDED),  # too few to tell how far they spread
    ],
)
def test_less_damage_counts_from_what_seeds_spread_on(
    seeds_lose: Sequence[float], theirs: Sequence[float], expected: Verdict, tmp_path: Path
) -> None:
    of_ot(tmp_path, seeds_lose)
    for at, points in enumerate(theirs):
        made_records.write(tmp_path, slimming("cifar10", "vgg14")[at :: len(theirs)], damaged(points))
    assert verdict(Records(tmp_path), DAMAGE)[0] is expected


def test_networks_that_slimming_broke_are_not_judged(tmp_path: Path) -> None:
    """A point ahead of whole networks counts; to be far ahead of one that only guesses does not."""
    needs = slimming("cifar10", "vgg14")
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), finetuned_by(0))
    made_records.write(tmp_path, needs, finetuned_by(1))
    assert verdict(Records(tmp_path), ABOVE_SLIMMING)[0] is Verdict.HOLDS
    broken = changed(lambda found: emptied(found) or found.update(accuracy_finetuned=0.1, accuracy_pruned=0.1))
    made_records.write(tmp_path, needs[-1:], broken)
    judged, evidence = verdict(Records(tmp_path), ABOVE_SLIMMING)
    assert judged is Verdict.HOLDS and evidence.endswith("1 network that NS broke, not judged")
    made_records.write(tmp_path, needs, broken)
    for claim in (ABOVE_SLIMMING, BY_PARAMETERS, DAMAGE):
        assert verdict(Records(tmp_path), claim)[0] is Verdict.UNDECIDED
