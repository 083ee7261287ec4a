"""Beyond the paper: goals as data, runs towards them, and what the page says of them and of choosing the recipe."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otprune.experiments import paper
from otprune.experiments.experiment import Pruning
from otprune.experiments.reproduce.needed import Kind, Needed, best
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import row, towards
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.settings import resolved
from otprune.report.goals import attempts, goals, goals_are_reached
from otprune.report.page import page
from otprune.report.verdicts import Verdict
from tests import made_records
from tests.small_runs import CPU, EXPERIMENT

NOWHERE = Path("nowhere")
GOAL = paper.goals()[0]
WITHIN = {"flops": 104_000_000, "parameters": 1_100_000, "macs": 1}


def measured(accuracies: tuple[float, ...], cost: dict[str, int]) -> Callable[[Needed], dict[str, Any]]:
    """A record of each seed with these accuracies; the last of them costs so much."""

    def make(needed: Needed) -> dict[str, Any]:
        record, seed = made_records.record(needed), needed.experiment.training.seed
        after = cost if seed == len(accuracies) - 1 else WITHIN
        record["results"] |= {"accuracy_finetuned": accuracies[seed], "cost_after": after}
        return record

    return make


def test_the_papers_values_beside_the_goals_are_those_of_its_tables() -> None:
    by_network = {(goal.data, goal.model): goal.paper for goal in paper.goals()}
    for data in ("cifar10", "cifar100"):
        table = paper.statistics(data, "ot")
        expected = {"accuracy": table.accuracy.mean, "flops": table.flops.mean, "parameters": table.parameters.mean}
        assert by_network[data, "vgg14"] == pytest.approx(expected)
    headline = paper.table("points")["headline"]
    assert by_network[headline["data"], headline["model"]].items() <= headline.items()


def test_a_goal_is_run_by_the_recipe_at_its_own_share_of_the_flops_for_three_seeds() -> None:
    for goal in paper.goals():
        needs, unpruned = towards(goal), paper.baselines()[goal.data, goal.model].flops
        assert unpruned is not None and [needed.experiment.training.seed for needed in needs] == [0, 1, 2]
        for needed in needs:
            asked, usual = needed.experiment, resolved({"model": goal.model, "data": goal.data}, "best")
            assert asked.training.label_smoothing == usual.training.label_smoothing > 0 and asked.hold_out == 0
            assert 0.5 * goal.flops < (asked.training.target_flops or 1) * unpruned <= goal.flops
            assert needed.place == needed.trained_at and "/best-" in needed.place
    assert len(row("best").needs) == 9


def test_a_run_by_a_recipe_of_its_own_is_trained_and_pruned_in_its_own_place(tmp_path: Path) -> None:
    """Beside it, the paper's run with the same λ is another training."""
    paper_run = Needed(EXPERIMENT, Kind.PRUNED)
    asked = Needed(replace(EXPERIMENT, pruning=Pruning(flops=0.5)), Kind.PRUNED, recipe="best")
    said: list[str] = []
    run_missing([paper_run, asked], Workshop(tmp_path / "runs", tmp_path / "results", CPU, say=said.append))
    records = Records(tmp_path / "results")
    found = records.find(asked)
    assert found is not None and found.place.endswith("/best-lam3e-1-seed0") and found.results["training"]
    assert found.results["cost_after"]["flops"] <= 0.5 * found.results["cost_before"]["flops"]
    assert len(said) == 2 and not records.lacks(paper_run)


@pytest.mark.parametrize(
    ("accuracies", "cost", "expected"),
    [
        ((0.939, 0.941, 0.942), WITHIN, Verdict.HOLDS),
        ((0.938, 0.939, 0.942), WITHIN, Verdict.FAILS),
        ((0.95, 0.95, 0.95), WITHIN | {"flops": 105_100_000}, Verdict.FAILS),
        ((0.95, 0.95), WITHIN, Verdict.OPEN),
    ],
)
def test_a_goal_is_reached_on_average_over_all_seeds_with_none_of_them_too_large(
    accuracies: tuple[float, ...], cost: dict[str, int], expected: Verdict, tmp_path: Path
) -> None:
    made_records.write(tmp_path, towards(GOAL)[: len(accuracies)], measured(accuracies, cost))
    assert attempts(Records(tmp_path))[0].verdict is expected
    claim = goals_are_reached(Records(tmp_path))
    assert claim.verdict is expected and bool(claim.evidence) is (expected is not Verdict.OPEN)


def test_as_long_as_a_seed_is_not_fine_tuned_all_are_judged_before_it(tmp_path: Path) -> None:
    made_records.write(tmp_path, towards(GOAL), measured((0.95, 0.95, 0.95), WITHIN))
    made_records.write(tmp_path, towards(GOAL)[1:2], lambda needed: recalibrated(0.92, needed))
    attempt = attempts(Records(tmp_path))[0]
    assert attempt.stage == "recalibrated" and attempt.verdict is Verdict.FAILS
    assert "recalibrated, not fine-tuned" in goals_are_reached(Records(tmp_path)).evidence


def test_a_goal_some_of_whose_seeds_are_missing_is_told_with_those_that_are_there(tmp_path: Path) -> None:
    made_records.write(tmp_path, towards(GOAL), measured((0.95, 0.95, 0.95), WITHIN))
    begun = towards(paper.goals()[1])
    made_records.write(tmp_path, begun[:1], measured((0.78,), WITHIN))
    assert (
        "1 of 3 seeds so far, 78.00 % (fine-tuned; 1 of 1 seed as accurate)"
        in goals_are_reached(Records(tmp_path)).evidence
    )
    table = list(goals(Records(tmp_path)))[1].splitlines()
    assert [line.split("|")[4].strip() for line in table[2:]] == ["**yes**", "seeds are missing", "not yet measured"]


def recalibrated(accuracy: float, needed: Needed) -> dict[str, Any]:
    record = made_records.record(needed)
    record["results"] |= {"accuracy_recalibrated": accuracy, "cost_after": WITHIN}
    del record["results"]["accuracy_finetuned"]
    return record


def test_parameters_count_where_the_goal_limits_them(tmp_path: Path) -> None:
    goal = next(goal for goal in paper.goals() if goal.parameters < math.inf)
    for parameters, expected in ((740_000, Verdict.HOLDS), (750_000, Verdict.FAILS)):
        cost = {"flops": 140_000_000, "parameters": parameters, "macs": 1}
        make = measured((0.78,) * 3, cost)
        made_records.write(tmp_path, towards(goal), lambda needed, c=cost, m=make: with_cost(m(needed), c))
        assert {one.goal.model: one.verdict for one in attempts(Records(tmp_path))}[goal.model] is expected


def with_cost(record: dict[str, Any], cost: dict[str, int]) -> dict[str, Any]:
    record["results"]["cost_after"] = cost
    return record


def test_the_page_shows_goal_paper_and_every_seed(tmp_path: Path) -> None:
    made_records.write(tmp_path, towards(GOAL), measured((0.94, 0.941, 0.942), WITHIN | {"flops": 103_000_000}))
    text = page(Records(tmp_path), NOWHERE)
    section = text.partition('<a id="best"></a>')[2].partition("## What is missing")[0]
    assert "## Beyond the paper" in section and "Records: 3 of 9 complete; 6 not run." in section
    assert (
        "| VGG-14 on CIFAR-10 | at least 94.00 % with at most 105M FLOPs | 93.52 %, 113M FLOPs and 1.16M parameters "
        "| **yes** | fine-tuned | 94.10 ± 0.08 | 104.00, 104.00, 103.00 | 1.10, 1.10, 1.10 | 3 of 3 |"
    ) in section
    assert section.count("| not yet measured | – | – | – | – | 0 of 3 |") == 2
    told = "94.10 ± 0.08 % (fine-tuned; 3 of 3 seeds as accurate), at least 94.00 % with at most 105M FLOPs"
    assert f"VGG-14 on CIFAR-10: {told}" in text


def chosen(folder: Path, name: str, **training: Any) -> None:
    asked = best(GOAL).experiment
    asked = replace(asked, hold_out=0.1, training=replace(asked.training, **training))
    record = made_records.record(Needed(asked, Kind.PRUNED))
    record["results"] |= {f"accuracy_held_out_{stage}": 0.9412 for stage in ("sparse", "recalibrated")}
    path = folder / "choosing" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")


def test_every_run_below_choosing_is_listed_with_what_it_had_otherwise_and_its_held_out_accuracy(
    tmp_path: Path,
) -> None:
    chosen(tmp_path, "first", seed=2)
    chosen(tmp_path, "vgg14/cifar10/slower", rate=0.07, schedule="steps")
    (tmp_path / "choosing" / "note.json").write_text("{}")
    table = list(goals(Records(tmp_path)))[-1].splitlines()
    target = f"target_flops={best(GOAL).experiment.training.target_flops:g}"
    assert len(table) == 4 and table[2].startswith(f"| first | VGG-14 on CIFAR-10 | {target} |")
    assert f"| rate=0.07, schedule=steps, {target} |" in table[3]
    assert all(line.endswith("| 94.12 % | 94.12 % | – |") for line in table[2:])


def test_runs_below_choosing_are_no_runs_of_the_paper(tmp_path: Path) -> None:
    chosen(tmp_path, "vgg14/slower")
    records = Records(tmp_path)
    assert records.all == {} and list(records.choosing) == ["choosing/vgg14/slower"]
    assert "So far 1 record" in page(records, NOWHERE)
