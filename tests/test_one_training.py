"""What the scaling factors of one training tell of OT and of Network Slimming, which both prune by them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import otprune as ot
from otprune import models
from otprune.errors import TrainingError
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import row, seeds, slimming
from otprune.report.one_training import ROW, Trained, trainings
from otprune.report.one_training_claims import slimming_breaks, slimming_keeps_the_same, slimming_reaches_as_far
from otprune.report.slimming_limit import limits
from otprune.report.verdicts import Verdict
from tests import made_records
from tests.made_records import changed
from tools.reproduction_page import ROOT


def with_gammas(folder: Path, needed: Needed, kept: float = 0.5, weak: float = 1.0) -> None:
    """A record of a training that keeps so much of each layer; the γ of the ninth are made that much smaller."""
    left = [round(kept * channels) for channels in made_records.CHANNELS]
    found = made_records.record(needed)
    gammas = {
        name: [0.2 + 0.4 * at / channels for at in range(k)]
        + [1e-7 * (1 + at / channels) for at in range(channels - k)]
        for name, channels, k in zip(made_records.NAMES, made_records.CHANNELS, left, strict=True)
    }
    gammas["features.28"] = [weak * gamma for gamma in gammas["features.28"]]
    found["results"]["gammas"] = gammas
    path = folder / f"{needed.place}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found), encoding="utf-8")


def only(folder: Path, data: str = "cifar10") -> Trained:
    (found,) = trainings(Records(folder), data)
    return found


def network_slimming(trained: Trained, ratio: float) -> list[int]:
    """The channels that NS leaves of each layer, or would leave: none where all were negligible."""
    model = models.build("vgg14", 10)
    for name, values in trained.gammas:
        model.get_submodule(name).get_parameter("weight").data.copy_(torch.tensor(values))
    plan = ot.plan(model, torch.zeros(1, 3, 32, 32), ot.GlobalRatio(ratio))
    return [layer.channels - layer.negligible for layer in plan.layers]


def test_up_to_its_limit_network_slimming_empties_no_layer_and_past_it_one(tmp_path: Path) -> None:
    """The ninth layer is the weakest: half of its γ are the smallest but for all that are negligible."""
    with_gammas(tmp_path, row(ROW).needs[0], weak=0.1)
    trained = only(tmp_path)
    magnitudes = torch.cat([torch.tensor(values).abs() for _, values in trained.gammas])
    weakest = max(dict(trained.gammas)["features.28"])
    below = int((magnitudes < weakest).sum())
    assert min(network_slimming(trained, (below + 0.5) / len(magnitudes))) == 1
    assert min(network_slimming(trained, (below + 1.5) / len(magnitudes))) == 0
    with_gammas(tmp_path, row(ROW).needs[0])
    assert only(tmp_path).limit > trained.limit  # where all are as strong, all go as far


def test_network_slimming_keeps_the_same_where_all_layers_are_alike_and_others_where_one_is_weak(
    tmp_path: Path,
) -> None:
    with_gammas(tmp_path, row(ROW).needs[0], weak=0.9)
    alike = only(tmp_path)
    assert alike.shared == 100 and alike.limit >= alike.taken
    claims = [claim(Records(tmp_path)) for claim in (slimming_reaches_as_far, slimming_keeps_the_same)]
    assert {claim.verdict for claim in claims} == {Verdict.HOLDS}
    with_gammas(tmp_path, row(ROW).needs[0], weak=1e-8)
    apart = only(tmp_path)
    kept = sum(round(0.5 * channels) for channels in made_records.CHANNELS)
    assert apart.shared == pytest.approx(100 * (kept - 256) / kept)  # none of the weak layer's
    assert apart.limit < apart.taken == pytest.approx(alike.taken)
    claims = [claim(Records(tmp_path)) for claim in (slimming_reaches_as_far, slimming_keeps_the_same)]
    assert {claim.verdict for claim in claims} == {Verdict.FAILS}


def test_the_limit_of_network_slimming_is_compared_with_the_papers(tmp_path: Path) -> None:
    """At the λ that NS has in the paper alone."""
    with_gammas(tmp_path, row(ROW).needs[0], kept=0.1)
    assert slimming_breaks(Records(tmp_path)).verdict is Verdict.OPEN
    for kept, limit, expected in ((0.75, "57.0", Verdict.HOLDS), (0.7, "62.4", Verdict.FAILS)):
        with_gammas(tmp_path, slimming("cifar10", "vgg14")[0], kept, weak=0.1)
        claim = slimming_breaks(Records(tmp_path))
        assert claim.verdict is expected and claim.evidence.startswith(f"CIFAR-10: {limit} % (the paper: 53 %), as p")


def test_a_training_counts_once_however_often_it_was_pruned(tmp_path: Path) -> None:
    first, second = row(ROW).needs[:2]
    for needed in (first, second, slimming("cifar10", "vgg14")[2], seeds("cifar10", "ns")[0]):
        with_gammas(tmp_path, needed, kept=0.5)
    assert [one.lam for one in trainings(Records(tmp_path), "cifar10")] == sorted(
        {first.experiment.training.lam, second.experiment.training.lam, 1e-4, 2e-4}
    )
    with_gammas(tmp_path, slimming("cifar10", "vgg14")[4], kept=0.5)
    assert len(trainings(Records(tmp_path), "cifar10")) == 4 and not trainings(Records(tmp_path), "cifar100")
    another = replace(
        second, experiment=replace(second.experiment, training=replace(second.experiment.training, seed=7))
    )
    with_gammas(tmp_path, another, kept=0.4)
    assert len(trainings(Records(tmp_path), "cifar10")) == 5


def test_scaling_factors_of_other_layers_are_refused_by_name(tmp_path: Path) -> None:
    needed = row(ROW).needs[0]
    made_records.write(tmp_path, [needed], changed(lambda found: found["gammas"].popitem()))
    with pytest.raises(
        TrainingError, match=rf"{needed.place}: its γ are not those of the batch norms of vgg14\. Get it"
    ):
        trainings(Records(tmp_path), "cifar10")


def test_the_table_has_the_papers_limit_where_network_slimming_has_its_own_penalty(tmp_path: Path) -> None:
    for needed in row(ROW).needs:
        with_gammas(tmp_path, needed)
    table, _ = limits(Records(tmp_path))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [line[:2] for line in cells if line[5] != "–"] == [["CIFAR-10", "1e-4"], ["CIFAR-100", "1e-4"]]
    assert [line[5] for line in cells if line[5] != "–"] == ["53", "31"] and len(cells) == 12


def test_what_is_found_for_a_recorded_seed_is_what_it_was_pruned_to() -> None:
    recorded = Records(ROOT / "results").find(seeds("cifar100", "ot")[3])
    assert recorded is not None
    costs = (recorded.results[f"cost_{when}"]["flops"] for when in ("after", "before"))
    taken = 100 * (1 - next(costs) / next(costs))
    found = trainings(Records(ROOT / "results"), "cifar100")
    assert any(one.taken == pytest.approx(taken, abs=1e-9) for one in found)
