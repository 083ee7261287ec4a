"""Verdicts follow from the records, and no further than chance lets them."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import pstdev, stdev
from typing import Any

import pytest

from otprune.errors import TrainingError
from otprune.experiments.reproduce.needed import Needed, baseline
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import row, seeds, slimming, sweep, sweeps_of_resnet20
from otprune.report.chance import ALONE, FOUR, SPREAD, above, reach, spread_of_one
from otprune.report.claims import claims, first_claims
from otprune.report.gamma_claims import Groups, grouped
from otprune.report.page import page
from otprune.report.points import pruned_share
from otprune.report.scoreboard import SUBJECTS
from otprune.report.verdicts import WAITING, Verdict, by_chance
from tests import made_records
from tests.made_records import changed
from tools.reproduction_page import ROOT

NOWHERE = Path("nowhere")
VGG = "VGG-14 on CIFAR-10"
DAMAGE = "Without any training, OT damages"
ABOVE_SLIMMING = "OT is more accurate than NS at NS's own λ at high sparsity"
BY_PARAMETERS = "OT is more accurate than NS at NS's own λ with as many parameters"


def verdict(records: Records, beginning: str) -> tuple[Verdict, str]:
    found = next(claim for claim in claims(records) if claim.text.startswith(beginning))
    return found.verdict, found.evidence


def emptied(results: dict[str, Any]) -> None:
    results["layers"][3].update(kept=1, negligible=results["layers"][3]["channels"])


def finetuned_by(points: float) -> Callable[[Needed], dict[str, Any]]:
    """Makes records that are fine-tuned to so many points below 94 %."""
    return changed(lambda found: found.update(accuracy_finetuned=0.94 - points / 100, accuracy_finetuned_1=0.93))


def test_two_seeds_differ_by_what_chance_is_taken_for() -> None:
    """The constants are those of the recorded seeds."""
    recorded = Records(ROOT / "results")
    found = [recorded.find(needed) for needed in seeds("cifar10", "ot")]
    accuracies = [100 * record.results["accuracy_finetuned"] for record in found if record]
    assert len(accuracies) == 11 and pstdev(accuracies) == pytest.approx(SPREAD, abs=0.01)
    assert (ALONE, FOUR) == (0.7, 1.0)


@pytest.mark.parametrize(("number", "t"), [(3, 4.303), (4, 3.182), (6, 2.571), (9, 2.306), (11, 2.228)])
def test_means_reach_as_far_as_students_t_says(number: int, t: float) -> None:
    """Quantiles at 97.5 percent, as tables have them; two values that alternate have a spread that is easily told."""
    values = ([0.0, 1.0] * number)[:number]
    spread = stdev(values)
    assert reach(values) == pytest.approx(t * spread / number**0.5, rel=2e-3)
    assert spread_of_one(values) == pytest.approx(t * spread * (1 + 1 / number) ** 0.5, rel=2e-3)


@pytest.mark.parametrize(
    ("values", "alone", "expected"),
    [
        ([0.6], None, None),
        ([0.8], None, True),
        ([-0.8], None, False),
        ([0.3, 0.4, 0.5], None, True),
        ([0.3, 0.4, 0.5], ALONE, None),
        ([-0.1, 0.0, 0.1, 0.05], None, False),  # level, and known well enough to say so
        ([0.03, 0.45, 0.87], None, None),  # it may well be more than half a point
        ([0.05, 0.3, 0.55], None, None),  # three tell little: 0.3, give or take 0.6
        ([-0.35, -0.3, -0.25], None, False),
        ([-2.0, 0.0, 2.0], None, None),
    ],
)
def test_a_difference_counts_where_chance_does_not_explain_it(
    values: list[float], alone: float | None, expected: bool | None
) -> None:
    assert above(values, alone) is expected
    assert bool(by_chance(values, alone)) is (abs(sum(values)) / len(values) <= reach(values, alone))


def test_without_records_no_claim_is_judged() -> None:
    assert {claim.verdict for claim in claims(Records(NOWHERE))} == {Verdict.OPEN}
    assert {claim.name for claim in first_claims(Records(NOWHERE))} <= {
        claim.name for claim in claims(Records(NOWHERE))
    }


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


def test_most_runs_have_converged_after_three_epochs(tmp_path: Path) -> None:
    needs = seeds("cifar10", "ot")[:3]
    for late, change, expected in ((1, 0.006, Verdict.HOLDS), (2, 0.006, Verdict.FAILS), (2, -0.006, Verdict.FAILS)):
        for at, needed in enumerate(needs):
            after_three = {"accuracy_finetuned_3": 0.93, "accuracy_finetuned": 0.93 + change if at < late else 0.934}
            made_records.write(tmp_path, [needed], changed(lambda found, new=after_three: found.update(new)))
        judged, evidence = verdict(Records(tmp_path), "Fine-tuned, OT converges within three epochs")
        assert judged is expected and evidence == f"{VGG}: {3 - late} of 3 runs"


def test_one_bad_seed_is_enough_for_recalibration_to_lose(tmp_path: Path) -> None:
    """The mean of the seeds would not show it."""
    made_records.write(tmp_path, seeds("cifar10", "ot")[:8], changed(recalibrated_by(0.0)))
    made_records.write(tmp_path, seeds("cifar10", "ot")[8:9], changed(recalibrated_by(-0.008)))
    judged, evidence = verdict(Records(tmp_path), "New: recalibrated")
    assert judged is Verdict.FAILS and "-0.80 points at worst, over 0.5 lost by 1 of 9" in evidence


def test_one_bad_network_is_enough_for_recalibration_to_lose(tmp_path: Path) -> None:
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), changed(recalibrated_by(-0.001)))
    assert verdict(Records(tmp_path), "New: recalibrated")[0] is Verdict.HOLDS
    made_records.write(tmp_path, sweep("cifar10", "vgg14")[:1], changed(recalibrated_by(-0.006)))
    judged, evidence = verdict(Records(tmp_path), "New: recalibrated")
    assert judged is Verdict.FAILS and "-0.60 points at worst" in evidence


def recalibrated_by(points: float) -> Callable[[dict[str, Any]], None]:
    return lambda results: results.update(accuracy_recalibrated=results["accuracy_sparse"] + points)


@pytest.mark.parametrize(
    ("shift", "stage", "accuracy", "edge", "mending"),
    [
        (0, "pruned", 0.937, True, True),
        (-1, "pruned", 0.930, False, True),
        (0.1, "pruned", 0.9355, False, True),
        (-1, "finetuned", 0.9265, True, False),  # no better than what lies past the threshold
        (0.1, "finetuned", 0.9368, True, True),
        (0.1, "finetuned", 0.9370, True, False),
    ],
)
def test_what_lies_past_the_threshold_is_judged_by_what_lies_up_to_it(
    shift: float, stage: str, accuracy: float, edge: bool, mending: bool, tmp_path: Path
) -> None:
    """As pruned by half a point on both sides; fine-tuned by the least accurate network up to it."""
    (needed,) = row("threshold-demo").needs
    content = made_records.record(needed) | {"accuracy_sparse": 0.937}
    for one in content["shifts"]:
        one["accuracy_pruned"] = 0.937 if one["shift"] <= 0 else 0.9
        one |= {f"accuracy_{stage}": accuracy} if one["shift"] == shift else {}
    made_records.write(tmp_path, [needed], lambda _: content)
    judged = [one.judged.popitem()[1] for one in claims(Records(tmp_path)) if one.row == "threshold-demo"]
    assert judged == [edge, mending]


@pytest.mark.parametrize(
    ("shares", "losses", "mark"),
    [
        ((30.0, 75.0), (-2.0, 0.5), "✓"),
        ((30.0, 75.0), (0.0, 2.0), "?"),  # on average 1.2 points less at their two networks, and no seeds to tell
        ((30.0, 75.0), (-1.0, 1.5), "?"),  # 1.9: counts against our own runs, not against another's unpruned network
        ((30.0, 75.0), (0.5, 9.0), "✗"),
        ((45.0, 75.0), (-1.0, 0.3), "✓"),  # their mildest network is out of reach; on their line it would lose 1.64
        ((30.0, 40.0), (0.0, 0.1), "?"),
    ],
)
def test_ways_to_penalize_are_compared_apart_and_only_as_far_as_they_reach(
    shares: tuple[float, ...], losses: tuple[float, ...], mark: str, tmp_path: Path
) -> None:
    """Ye et al. report two networks, at 37 and at 68 percent of the parameters."""
    made_records.write(tmp_path, [baseline("cifar10", "resnet20")])
    way, unpruned = "OT inside blocks", made_records.record(baseline("cifar10", "resnet20"))
    full = unpruned["results"]["accuracy_sparse"]
    for needed, share, lost in zip(sweeps_of_resnet20()[way], shares, losses, strict=False):
        after = {kind: round(cost * (1 - share / 100)) for kind, cost in made_records.BEFORE.items()}
        change = {"accuracy_finetuned": full - lost / 100, "cost_after": after}
        made_records.write(tmp_path, [needed], changed(lambda found, change=change: found.update(change)))
    found = {claim.name: claim for claim in claims(Records(tmp_path))}
    claim, other = (found[f"{one} loses less accuracy than Ye et al. report"] for one in (way, "OT"))
    assert claim.mark("ResNet-20 on CIFAR-10") == mark and other.mark("ResNet-20 on CIFAR-10") == WAITING
    assert claim.again and not other.again
    assert ("it removes at most 40 %" in claim.evidence) is (shares[1] == 40)


@pytest.mark.parametrize(
    ("accuracy", "parameters", "expected"),
    [
        (0.77, 740_000, Verdict.HOLDS),
        (0.76, 740_000, Verdict.UNDECIDED),  # as much by chance above as below
        (0.757, 740_000, Verdict.UNDECIDED),  # one seed may be 0.29 points below by chance
        (0.754, 740_000, Verdict.UNDECIDED),
        (0.75, 740_000, Verdict.FAILS),
        (0.77, 800_000, Verdict.UNDECIDED),
    ],
)
def test_the_headline_holds_only_where_cost_and_accuracy_do(
    accuracy: float, parameters: int, expected: Verdict, tmp_path: Path
) -> None:
    cost = {"flops": 146_000_000, "parameters": parameters, "macs": 1}
    change = changed(lambda found: found.update(accuracy_finetuned=accuracy, cost_after=cost))
    made_records.write(tmp_path, sweep("cifar100", "densenet121")[-1:], change)
    judged, evidence = verdict(Records(tmp_path), "DenseNet-121 on CIFAR-100")
    assert judged is expected and f"{100 * accuracy:.2f} % with 146M FLOPs" in evidence
    assert ("no network as small is recorded" in evidence) is (parameters == 800_000)
    assert ("-0.29 points, which chance may explain" in evidence) is (accuracy == 0.757)


def test_the_headline_is_judged_by_what_is_left_without_dead_layers(tmp_path: Path) -> None:
    large = changed(lambda found: found.update(accuracy_finetuned=0.757, cost_after=made_records.BEFORE))
    made_records.write(tmp_path, sweep("cifar100", "densenet121")[-1:], large)
    without = {"accuracy_finetuned": 0.7568, "flops": 121_904_956, "parameters": 578_576}
    (tmp_path / "dead_layers.json").write_text(json.dumps({"results": {"without": without}}))
    judged, evidence = verdict(Records(tmp_path), "DenseNet-121 on CIFAR-100")
    assert judged is Verdict.UNDECIDED and evidence.startswith("75.68 % with 122M FLOPs and 0.58M parameters, its dead")
    (tmp_path / "dead_layers.json").write_text(json.dumps({"results": {"without": {}}}))
    with pytest.raises(TrainingError, match=r"dead_layers\.json: is no record of dead layers: .*accuracy_finetuned"):
        claims(Records(tmp_path))


def test_a_claim_says_on_how_much_of_the_paper_it_can_be_told(tmp_path: Path) -> None:
    needs = slimming("cifar10", "vgg14")
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), finetuned_by(0))
    made_records.write(tmp_path, needs, finetuned_by(2))
    assert "**holds** (told on 1 of 6)" in page(Records(tmp_path), NOWHERE)


def test_the_overview_marks_where_each_claim_holds(tmp_path: Path) -> None:
    needs = slimming("cifar10", "vgg14")
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), finetuned_by(0))
    made_records.write(tmp_path, needs, finetuned_by(2))
    worse = changed(lambda found: found.update(accuracy_recalibrated=0.5))
    made_records.write(tmp_path, sweep("cifar100", "vgg14"), worse)
    marks = {claim.name: list(map(claim.mark, SUBJECTS)) for claim in claims(Records(tmp_path))}
    assert marks["OT is more accurate than NS at NS's own λ, where much is gone"] == ["✓", *[WAITING] * 5, ""]
    assert marks["New: recalibrated, not fine-tuned, OT loses at most 0.5 points"] == ["✗", "✗", *[WAITING] * 4, ""]
    assert marks["whole residual branches can be removed"] == ["", "", "", WAITING, "", WAITING, WAITING]
    assert marks["OT is more accurate than NS on ILSVRC-2012"] == [""] * 7


def test_claims_of_rounds_say_which_way_was_not_run(tmp_path: Path) -> None:
    needs = [needed for needed in row("iterative").needs if needed.restart == "finetuned"]
    made_records.write(tmp_path, [*needs, *sweep("cifar10", "vgg14")])
    assert verdict(Records(tmp_path), "Iterative OT is stable")[1].endswith("; from scratch: not run yet")
    made_records.write(tmp_path, row("iterative").needs)
    assert "not run" not in verdict(Records(tmp_path), "Iterative OT is stable")[1]


def parted(negligible: float, channels: int, layers: int = 3) -> Callable[[Needed], dict[str, Any]]:
    """Makes records of some layers whose γ are in two groups, and one with few of either.

    One of the negligible ones lies beside the important ones.
    """
    gamma = [negligible] * (channels - 1) + [0.099] + [-0.1] * channels
    gammas = {str(number): gamma for number in range(layers)} | {"few": gamma[channels - 2 :]}

    def change(results: dict[str, Any]) -> None:
        results["gammas"] = gammas
        results["layers"] = [
            {"name": name, "channels": len(found), "kept": channels, "threshold": 0.1, "negligible": number}
            for name, found in gammas.items()
            for number in [2 if name == "few" else channels]
        ]

    return changed(change)


@pytest.mark.parametrize(("negligible", "expected"), [(1e-5, Verdict.HOLDS), (1e-2, Verdict.FAILS)])
@pytest.mark.parametrize("channels", [20, 40])
def test_groups_of_scaling_factors_are_compared_but_for_outliers(
    channels: int, negligible: float, expected: Verdict, tmp_path: Path
) -> None:
    made_records.write(tmp_path, sweep("cifar100", "densenet121")[:1], parted(negligible, channels))
    judged, evidence = verdict(Records(tmp_path), "At every λ, the smallest important scaling factor")
    middle = {1e-5: "1e4", 1e-2: "10"}[negligible]
    assert judged is expected and evidence.startswith(
        f"DenseNet-121 on CIFAR-100: median {middle} at λ=1e-5 (3); "
        f"of all, {middle} to {middle} in the middle half, at least 1e5 in 0 %; "
        "1.0 with 2 % and 1.0 with 1 % left out; in 3 of 4 layers; "
    )


def test_groups_of_scaling_factors_are_judged_at_every_lambda_that_enough_layers_tell_of(tmp_path: Path) -> None:
    weak, middle, strong = sweep("cifar100", "densenet121")[:3]
    made_records.write(tmp_path, [weak, strong], parted(1e-5, 20, layers=9))
    made_records.write(tmp_path, [middle], parted(1e-2, 20, layers=2))
    beginning = "At every λ, the smallest important scaling factor"
    assert verdict(Records(tmp_path), beginning)[0] is Verdict.HOLDS
    made_records.write(tmp_path, [middle], parted(1e-2, 20, layers=3))
    judged, evidence = verdict(Records(tmp_path), beginning)
    assert judged is Verdict.FAILS and "1e4 at λ=1e-5 (9), 10 at λ=2e-5 (3), 1e4 at λ=5e-5 (9)" in evidence


def test_scaling_factors_that_a_record_has_rounded_stay_in_their_group() -> None:
    """The threshold is the smallest important one, in full: rounded, that lies below it."""
    assert grouped([0.333333, 1e-6], negligible=1) == Groups([1e-6], [0.333333])


def test_another_reading_of_a_claim_is_not_counted_again() -> None:
    found = claims(Records(NOWHERE))
    theirs = [claim for claim in found if not claim.is_new]
    counted = len(theirs) - sum(claim.again for claim in theirs)
    assert f"Of the paper's {counted} claims, {counted} are not" in page(Records(NOWHERE), NOWHERE)
    assert counted < len(theirs)


@pytest.mark.parametrize(
    ("last", "others", "expected", "over"),
    [(0.4, 0.4, Verdict.HOLDS, ""), (0.6, 0.6, Verdict.FAILS, ", over 0.5 in 7"), (1.0, 0.0, Verdict.HOLDS, " in 1")],
)
def test_one_epoch_is_enough_where_the_others_gain_little(
    last: float, others: float, expected: Verdict, over: str, tmp_path: Path
) -> None:
    """On average, and where it is not is told."""

    def late(gain: float) -> Callable[[Needed], dict[str, Any]]:
        return changed(lambda found: found.update(accuracy_finetuned_1=0.92, accuracy_finetuned=0.92 + gain / 100))

    made_records.write(tmp_path, sweep("cifar10", "vgg14"), late(others))
    made_records.write(tmp_path, sweep("cifar10", "vgg14")[-1:], late(last))
    judged, evidence = verdict(Records(tmp_path), "One epoch of fine-tuning is enough")
    assert judged is expected and evidence.endswith(over)
    assert ("over" in evidence) is bool(over)


@pytest.mark.parametrize(
    ("network", "gain", "expected"),
    [
        ("vgg14", 0.3, Verdict.HOLDS),
        ("vgg14", 0.0, Verdict.FAILS),
        ("densenet121", 0.3, Verdict.HOLDS),
        ("densenet121", 0.6, Verdict.FAILS),
    ],
)
def test_from_scratch_is_better_than_fine_tuned_but_for_densenet(
    network: str, gain: float, expected: Verdict, tmp_path: Path
) -> None:
    fresh = changed(lambda found: found.update(accuracy_finetuned=0.92, accuracy_scratch=0.92 + gain / 100))
    made_records.write(tmp_path, sweep("cifar10", network, scratch=True), fresh)
    assert verdict(Records(tmp_path), "Trained from scratch, OT's networks")[0] is expected


def test_what_one_network_gains_from_scratch_is_not_told_from_chance(tmp_path: Path) -> None:
    fresh = changed(lambda found: found.update(accuracy_finetuned=0.92, accuracy_scratch=0.923))
    for network in ("vgg14", "densenet121"):
        made_records.write(tmp_path, sweep("cifar10", network, scratch=True)[:1], fresh)
        assert verdict(Records(tmp_path), "Trained from scratch, OT's networks")[0] is Verdict.UNDECIDED


@pytest.mark.parametrize(("removed", "expected"), [(["layer1.0"], Verdict.HOLDS), ([], Verdict.FAILS)])
def test_branches_go_where_some_network_lost_one(removed: list[str], expected: Verdict, tmp_path: Path) -> None:
    needs = sweeps_of_resnet20()["OT"]
    made_records.write(tmp_path, needs)
    made_records.write(tmp_path, needs[-1:], changed(lambda found: found.update(removed=removed)))
    assert verdict(Records(tmp_path), "Whole branches of residual networks")[0] is expected


def of_seeds(folder: Path, *values: tuple[dict[str, Any], dict[str, Any]]) -> Records:
    """For each seed what is measured of OT, and of NS, made of one training on CIFAR-10."""
    for seed, both in enumerate(values):
        for rule, change in zip(("ot", "ns"), both, strict=True):
            found = {"accuracy_sparse": 0.93, **change}
            made_records.write(folder, seeds("cifar10", rule)[seed : seed + 1], changed(lambda r, f=found: r.update(f)))
    return Records(folder)


@pytest.mark.parametrize(
    ("stronger", "expected"),
    [
        ((100.0, 100.0, 100.0), Verdict.HOLDS),
        ((1e-3, 1e-3, 1e-3), Verdict.FAILS),
        ((100.0, 1e-3, 1.0), Verdict.UNDECIDED),
        ((100.0, 100.0), Verdict.UNDECIDED),  # too few seeds
    ],
)
def test_fewer_flops_count_over_seeds_with_as_many_channels(
    stronger: tuple[float, ...], expected: Verdict, tmp_path: Path
) -> None:
    """γ of the second layer, whose images are large, are so many times as strong: NS keeps all of it, or little."""

    def make(needed: Needed) -> dict[str, Any]:
        found, factor = made_records.record(needed), stronger[needed.experiment.training.seed]
        gammas = found["results"]["gammas"] = {
            name: [(0.005 if at < channels // 2 else 0.3) * (1 + at / channels) for at in range(channels)]
            for name, channels in zip(made_records.NAMES, made_records.CHANNELS, strict=True)
        }
        gammas["features.4"] = [factor * gamma for gamma in gammas["features.4"]]
        return found

    made_records.write(tmp_path, seeds("cifar10", "ot")[: len(stronger)], make)
    judged, evidence = verdict(Records(tmp_path), "Over the seeds, with as many channels, OT's VGG-14")
    assert judged is expected and f"on average of {len(stronger)} seeds" in evidence


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0.92, 0.92, 0.92), (0.900, 0.898, 0.902), Verdict.HOLDS),
        ((0.900, 0.898, 0.902), (0.92, 0.92, 0.92), Verdict.FAILS),
        ((0.92, 0.92, 0.50), (0.92, 0.92, 0.92), Verdict.UNDECIDED),  # one seed tells little
        ((0.92, 0.92, 0.92), (0.92, 0.92, 0.92), Verdict.FAILS),
    ],
)
def test_less_damage_over_seeds_is_told_by_the_mean_of_their_differences(
    ours: tuple[float, ...], theirs: tuple[float, ...], expected: Verdict, tmp_path: Path
) -> None:
    pairs = [({"accuracy_pruned": a}, {"accuracy_pruned": b}) for a, b in zip(ours, theirs, strict=True)]
    assert verdict(of_seeds(tmp_path, *pairs), "New: at the same λ, too, OT damages")[0] is expected


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.5, 0.48, 0.47), Verdict.HOLDS), ((0.5, 0.47, 0.44), Verdict.FAILS), ((0.5, 0.48, 0.45), Verdict.FAILS)],
)
def test_rounds_are_stable_where_each_takes_little_of_what_is_left(
    shares: Sequence[float], expected: Verdict, tmp_path: Path
) -> None:
    needed = next(needed for needed in row("iterative").needs if needed.restart == "finetuned")
    content = made_records.record(needed)
    for number, one in enumerate(content["rounds"]):
        one["flops"] = shares[min(number, 2)]
    made_records.write(tmp_path, [needed], lambda _: content)
    assert verdict(Records(tmp_path), "Iterative OT is stable")[0] is expected


@pytest.mark.parametrize(
    ("behind", "expected"), [(1.0, Verdict.HOLDS), (0.0, Verdict.UNDECIDED), (-1.0, Verdict.FAILS)]
)
def test_one_shot_is_compared_with_each_round_of_slimming(behind: float, expected: Verdict, tmp_path: Path) -> None:
    needed = next(needed for needed in row("iterative").needs if needed.experiment.pruning.rule == "ns")
    content = made_records.record(needed)
    for one in content["rounds"]:
        one["accuracy"] = 0.93 - behind / 100
    made_records.write(tmp_path, [needed], lambda _: content)
    level = changed(lambda found: found.update(accuracy_finetuned=0.93))
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), level)
    assert verdict(Records(tmp_path), "OT in one shot is more accurate")[0] is expected


@pytest.mark.parametrize(("flops", "expected"), [(147e6, Verdict.HOLDS), (150e6, Verdict.UNDECIDED)])
def test_the_headline_is_that_of_the_best_network_that_is_as_small(
    flops: float, expected: Verdict, tmp_path: Path
) -> None:
    """To within what the paper rounds; a smaller one is less accurate, which tells nothing of this one."""
    for needed, cost, accuracy in zip(sweep("cifar100", "densenet121"), (flops, 1e8), (0.77, 0.70), strict=False):
        after = {"flops": cost, "parameters": 700_000, "macs": 1}
        change = {"accuracy_finetuned": accuracy, "cost_after": after}
        made_records.write(tmp_path, [needed], changed(lambda found, change=change: found.update(change)))
        if expected is Verdict.UNDECIDED:
            break
    assert verdict(Records(tmp_path), "DenseNet-121 on CIFAR-100")[0] is expected
