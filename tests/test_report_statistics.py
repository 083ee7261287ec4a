"""The statistics over seeds: the paper's columns beside ours, seed by seed, and the epoch that might be picked."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.container import BarContainer

from otprune.errors import TrainingError
from otprune.experiments.reproduce.needed import Needed, baseline
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import seeds, slimming
from otprune.report.comparisons import statistics as drawn_statistics
from otprune.report.over_seeds import statistics
from otprune.report.page import page
from otprune.report.picking import HISTORY, picking
from otprune.report.same_lambda_claims import less_damage_over_seeds, slimming_needs_more_epochs_over_seeds
from otprune.report.seed_by_seed import seed_by_seed
from otprune.report.seed_claims import better_over_seeds, cheaper_over_seeds, slimming_breaks_over_seeds
from otprune.report.verdicts import Claim, Verdict
from tests import made_records
from tests.made_records import changed, with_accuracy

NOWHERE = Path("nowhere")
FIRST = {"epoch": 1, "loss": 2.0}


def test_the_page_shows_the_papers_value_ours_and_the_difference(tmp_path: Path) -> None:
    accuracies = dict.fromkeys(range(11), 0.9330)
    made_records.write(tmp_path, seeds("cifar10", "ot"), lambda needed: with_accuracy(needed, accuracies))
    text = page(Records(tmp_path), NOWHERE)
    assert "| accuracy (%) | 93.52 ± 0.12 | 93.30 ± 0.00 | **-0.22** | 93.39 ± 0.17 | – | – |" in text
    assert "OT, here (11 seeds)" in text and "NS, here (0 seeds)" in text
    assert "![" in text and "figures/statistics-cifar10.svg" in text


def test_what_slimming_makes_of_its_own_lambda_stands_beside_the_papers_column(tmp_path: Path) -> None:
    """The ratio of the table is not among those of the sweep, but one is so near that it keeps nearly the same."""
    near = next(needed for needed in slimming("cifar10", "vgg14") if needed.experiment.pruning.ratio == 0.7)
    made_records.write(tmp_path, [near], changed(lambda results: results.update(accuracy_finetuned=0.9351)))
    text = "\n".join(statistics(Records(tmp_path)))
    assert "| NS at λ=1e-4, here (1 seed) | NS at λ=1e-4, difference |" in text
    assert "| accuracy (%) | 93.52 ± 0.12 | – | – | 93.39 ± 0.17 | – | – | 93.51 | +0.12 |" in text
    assert "NS at" not in "\n".join(statistics(Records(NOWHERE)))


def test_the_figure_shows_slimming_at_its_own_lambda_beside_that_of_the_table(tmp_path: Path) -> None:
    near = next(needed for needed in slimming("cifar10", "vgg14") if needed.experiment.pruning.ratio == 0.7)
    made_records.write(tmp_path, [near])
    assert not list(drawn_statistics(Records(tmp_path)))  # it is there to be compared with
    made_records.write(tmp_path, seeds("cifar10", "ns")[:2])
    (sketch,) = drawn_statistics(Records(tmp_path))
    ot, ns = sketch.draw().axes
    labels = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in (ot, ns)]
    assert labels[0] == ["OT, paper (11 seeds)"]
    assert labels[1] == ["NS, paper (11 seeds)", "NS, here (2 seeds)", "NS at λ=1e-4, here (1 seed)"]
    places = [bar.get_x() for bars in ns.containers if isinstance(bars, BarContainer) for bar in bars]
    assert len(places) == len(set(places)) == 3 * 13 and "unless said" in sketch.caption


def test_seeds_are_told_one_by_one_with_how_they_began(tmp_path: Path) -> None:
    """Here those that begin worse are left with less, in a line."""
    needs = seeds("cifar10", "ot")[:3]

    def made(needed: Needed) -> dict[str, Any]:
        seed = needed.experiment.training.seed
        record = made_records.record(needed)
        record["results"]["training"] = [{"epoch": 1, "loss": 1.5 + seed / 8}, {"epoch": 2, "loss": 0.5}]
        record["results"]["cost_after"]["flops"] = (120 - seed) * 10**6
        record["results"]["layers"] = [{"name": "features.1", "channels": 128, "kept": 100 - seed}]
        return record

    made_records.write(tmp_path, needs[:2], made)
    assert not list(seed_by_seed(Records(tmp_path), "cifar10"))
    made_records.write(tmp_path, needs, made)
    table, sentence = seed_by_seed(Records(tmp_path), "cifar10")
    assert "| seed 2 | 1.750 | 98 | 118.00 |" in table
    assert "Over these 3 seeds" in sentence and "with the channels left by -1.00" in sentence


@pytest.mark.parametrize(
    "training", [[], [{"epoch": 1}], [{"epoch": 1, "loss": None}], [{"epoch": 1, "loss": math.inf}]]
)
def test_seeds_that_do_not_tell_how_they_began_are_left_out(training: list[Any], tmp_path: Path) -> None:
    made_records.write(tmp_path, seeds("cifar10", "ot")[:3], changed(lambda found: found.update(training=training)))
    assert not list(seed_by_seed(Records(tmp_path), "cifar10"))


def test_rules_are_compared_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """OT's first seed, without a counterpart, would tip the balance."""
    accuracies, theirs = {0: 0.99, 1: 0.92, 2: 0.92, 3: 0.92}, {1: 0.93, 2: 0.93, 3: 0.93}
    made_records.write(tmp_path, seeds("cifar10", "ot")[:4], lambda needed: with_accuracy(needed, accuracies))
    made_records.write(tmp_path, seeds("cifar10", "ns")[1:4], lambda needed: with_accuracy(needed, theirs))
    claim = better_over_seeds(Records(tmp_path))
    assert claim.verdict is Verdict.FAILS and "-1.00 points on average of 3 seeds" in claim.evidence
    assert claim.scope == "(told on 1 of 2)"


def test_rules_are_not_compared_where_they_pruned_different_trainings(tmp_path: Path) -> None:
    for rule in ("ot", "ns"):
        made_records.write(tmp_path, seeds("cifar10", rule)[:4])
    assert "of 4 seeds" in better_over_seeds(Records(tmp_path)).evidence
    anew = changed(lambda found: found.update(accuracy_sparse=0.5))
    made_records.write(tmp_path, seeds("cifar10", "ns")[:1], anew)
    assert "of 3 seeds" in better_over_seeds(Records(tmp_path)).evidence


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        ((0.004, 0.005, 0.006, 0.005), Verdict.HOLDS),
        ((-0.004, -0.005, -0.006, -0.005), Verdict.FAILS),
        ((0.001, -0.001, 0.001, -0.001), Verdict.UNDECIDED),  # the paper's 0.13 points may well be there
        ((0.0001, -0.0001, 0.0001, -0.0001), Verdict.FAILS),  # surely less than that
    ],
)
def test_a_lead_over_seeds_is_ruled_out_where_it_surely_is_less_than_the_papers(
    ahead: tuple[float, ...], expected: Verdict, tmp_path: Path
) -> None:
    ours = {seed: 0.93 + lead for seed, lead in enumerate(ahead)}
    made_records.write(tmp_path, seeds("cifar10", "ot")[:4], lambda needed: with_accuracy(needed, ours))
    made_records.write(
        tmp_path, seeds("cifar10", "ns")[:4], lambda needed: with_accuracy(needed, dict.fromkeys(ours, 0.93))
    )
    claim = better_over_seeds(Records(tmp_path))
    assert claim.verdict is expected and "(the paper: +0.13)" in claim.evidence


@pytest.mark.parametrize(
    ("quiet", "narrowest", "expected"), [(0, "keeps 5 channels", Verdict.FAILS), (1, "keeps 0 to 5", Verdict.HOLDS)]
)
def test_slimming_as_narrow_as_ot_is_told_from_the_scaling_factors(
    quiet: int, narrowest: str, expected: Verdict, tmp_path: Path
) -> None:
    """In one seed the important ones of a layer are smaller than the negligible ones of another."""

    def of(needed: Needed) -> dict[str, Any]:
        found, scale = made_records.record(needed), 1e-3 if needed.experiment.training.seed < quiet else 1.0
        layers = {"a": [0.5] * 5 + [1e-6] * 15, "b": [0.5 * scale] * 5 + [1e-6] * 15, "c": [0.5] * 5 + [0.01] * 15}
        found["results"]["gammas"] = layers
        found["results"]["layers"] = [
            {"name": name, "channels": 20, "kept": 5, "threshold": 0.1, "negligible": 15} for name in layers
        ]
        return found

    made_records.write(tmp_path, seeds("cifar10", "ot")[:3], of)
    claim = slimming_breaks_over_seeds(Records(tmp_path))
    assert claim.verdict is expected and f"in {quiet} of 3 seeds, the narrowest layer {narrowest}" in claim.evidence


@pytest.mark.parametrize(
    ("claim", "ours", "theirs", "expected"),
    [
        (less_damage_over_seeds, {"accuracy_pruned": 0.88}, {"accuracy_pruned": 0.92}, Verdict.FAILS),
        (less_damage_over_seeds, {"accuracy_pruned": 0.88}, {"accuracy_pruned": 0.84}, Verdict.HOLDS),
        (slimming_needs_more_epochs_over_seeds, {}, {"accuracy_finetuned_1": 0.92}, Verdict.HOLDS),
        (slimming_needs_more_epochs_over_seeds, {"accuracy_finetuned_1": 0.92}, {}, Verdict.FAILS),
        (slimming_needs_more_epochs_over_seeds, {}, {}, Verdict.FAILS),
    ],
)
def test_rules_are_compared_at_the_same_lambda_by_what_they_damage_and_how_long_they_take(
    claim: Callable[[Records], Claim],
    ours: dict[str, float],
    theirs: dict[str, float],
    expected: Verdict,
    tmp_path: Path,
) -> None:
    for rule, change in (("ot", ours), ("ns", theirs)):
        found = {"accuracy_sparse": 0.93, "accuracy_finetuned_1": 0.93, "accuracy_finetuned": 0.93, **change}
        made_records.write(tmp_path, seeds("cifar10", rule)[:3], changed(lambda r, found=found: r.update(found)))
    judged = claim(Records(tmp_path))
    assert judged.verdict is expected and "of 3 seeds" in judged.evidence and judged.is_new


def test_seeds_that_began_in_fp32_too_are_told_with_it(tmp_path: Path) -> None:
    asked = {"data": "cifar10", "model": "vgg14", "lam": 2e-4, "device": "cpu", "steps": 781}
    made_records.write(tmp_path, seeds("cifar10", "ot")[:3], changed(lambda found: found.update(training=[FIRST])))
    for settings, columns in ((asked, 7), (asked | {"device": "cuda"}, 6), (asked | {"steps": 780}, 6)):
        content = {
            "configuration": settings,
            "results": {"1": {"loss": 1.75}, "2": {"loss": 2.125}, "9": {"loss": 9.0}},
        }
        (tmp_path / "first_epoch.json").write_text(json.dumps(content))
        table, *said = seed_by_seed(Records(tmp_path), "cifar10")
        assert {len(re.findall(r" \|", line)) for line in table.splitlines()} == {columns}
    assert len(said) == 1
    (tmp_path / "first_epoch.json").write_text(json.dumps(content | {"configuration": asked}))
    table, _, apart = seed_by_seed(Records(tmp_path), "cifar10")
    assert "| seed 0 | 2.000 | – |" in table and "| seed 2 | 2.000 | 2.125 |" in table
    assert "Of 2 seeds" in apart and "-0.062 away" in apart and "(-0.250 to +0.125), and higher for 1" in apart
    for damaged in ("[]", "{}", json.dumps(content | {"results": {"1": {}}})):
        (tmp_path / "first_epoch.json").write_text(damaged)
        with pytest.raises(TrainingError, match=r"first_epoch\.json: is no record of first epochs"):
            list(seed_by_seed(Records(tmp_path), "cifar10"))


def test_the_best_epoch_stands_beside_the_last_where_every_epoch_was_measured(tmp_path: Path) -> None:
    first, second, third, fourth = seeds("cifar10", "ot")[:4]
    measured = {"1": 0.94, "2": 0.92, "3": 0.93}
    made_records.write(tmp_path, [first], watched("finetune", measured, [1e-3] * 3))
    made_records.write(tmp_path, [second], watched("finetune", {"1": 0.92, "2": 0.932, "3": 0.934}, [1e-3] * 3))
    made_records.write(tmp_path, [third])
    made_records.write(tmp_path, [fourth], watched("finetune", {"2": 0.99, "3": 0.99}, [1e-3] * 3))
    table, explained = picking(Records(tmp_path))
    assert "| VGG-14 on CIFAR-10, OT | 2 | 93.52 ± 0.12 | 93.20 ± 0.20 | 92.93 ± 0.07 | 93.70 ± 0.30 |" in table
    assert "| +0.77 ± 0.23 |" in table and table.count("\n") == 2 and "the test images choose" in explained
    unpruned = watched("train", {"2": 0.75, "3": 0.735}, [0.1, 0.01, 0.01])
    made_records.write(tmp_path, [baseline("cifar100", "vgg14")], unpruned)
    table = next(picking(Records(tmp_path)))
    assert "| VGG-14 on CIFAR-100, unpruned | 1 | 74.00 | 73.50 | 74.25 | 75.00 | +0.75 |" in table


def watched(stage: str, by_epoch: dict[str, float], rates: list[float]) -> Callable[[Needed], dict[str, Any]]:
    history = [{"epoch": number, "rate": rate, "loss": 1.0} for number, rate in enumerate(rates, start=1)]
    return changed(lambda found: found.update({"test_by_epoch": {stage: by_epoch}, HISTORY[stage]: history}))


def test_fewer_than_three_seeds_are_told_and_not_judged(tmp_path: Path) -> None:
    for rule in ("ot", "ns"):
        made_records.write(tmp_path, seeds("cifar100", rule)[:2])
    for claim in (better_over_seeds(Records(tmp_path)), cheaper_over_seeds(Records(tmp_path))):
        assert (
            claim.verdict is Verdict.UNDECIDED
            and claim.mark("VGG-14 on CIFAR-100") == "?"
            and "2 seeds" in claim.evidence
        )
