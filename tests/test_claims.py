"""Verdicts follow from the records, and no further than chance lets them."""

import json
from collections.abc import Callable, Sequence
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
from otprune.report.page import page
from otprune.report.scoreboard import SUBJECTS
from otprune.report.verdicts import WAITING, Verdict, by_chance
from tests import made_records
from tests.judged import finetuned_by, verdict
from tests.made_records import changed
from tools.reproduction_page import ROOT

NOWHERE = Path("nowhere")
VGG = "VGG-14 on CIFAR-10"


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
