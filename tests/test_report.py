"""Figures, verdicts and the page follow from the records that there are, and say what is missing."""

import json
import math
import re
import xml.dom.minidom
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from otprune.cli import app
from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import row, rows, seeds, slimming, sweep
from otprune.report.claims import claims
from otprune.report.columns import column
from otprune.report.figures import FIGURES, draw
from otprune.report.over_seeds import seed_by_seed, statistics
from otprune.report.page import page
from otprune.report.points import counted, points, pruned_share
from otprune.report.seed_claims import better_over_seeds
from otprune.report.tables import sweeps
from otprune.report.verdicts import Verdict
from tests import made_records
from tools.reproduction_page import PAGE, REMARKS, ROOT

NOWHERE = Path("nowhere")


@pytest.fixture(scope="module")
def all_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of everything, of VGG-14 and ResNet-20 at least: the others look the same and take time."""
    folder = tmp_path_factory.mktemp("results")
    needs = [needed for one in rows().values() for needed in one.needs]
    small = [needed for needed in needs if needed.experiment.model in ("vgg14", "resnet20")]
    made_records.write(folder, sorted(small, key=lambda needed: needed.scratch))
    made_records.write_latency(folder)
    return folder


@pytest.fixture(scope="module")
def read_twice(all_made: Path) -> tuple[Records, Records]:
    """The same records, from two looks at the files."""
    return Records(all_made), Records(all_made)


def verdict(records: Records, beginning: str) -> tuple[Verdict, str]:
    found = next(claim for claim in claims(records) if claim.text.startswith(beginning))
    return found.verdict, found.evidence


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_as_svg_and_png_and_the_same_every_time(
    name: str, read_twice: tuple[Records, Records], tmp_path: Path
) -> None:
    first, again = (draw(name, records, tmp_path / str(look)) for look, records in enumerate(read_twice))
    assert first and {path.suffix for path in first} == {".svg", ".png"}
    for path, other in zip(first, again, strict=True):
        assert path.read_bytes() == other.read_bytes()
    for path in first:
        if path.suffix == ".svg":
            xml.dom.minidom.parse(str(path))
            assert not re.search(r"20\d\d-\d\d-\d\dT", path.read_text(encoding="utf-8"))
        else:
            assert len(Image.open(path).convert("L").getcolors() or ()) > 10


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_records_is_not_drawn(name: str, tmp_path: Path) -> None:
    assert draw(name, Records(tmp_path), tmp_path / "figures") == [] and not (tmp_path / "figures").exists()


def test_what_is_not_recorded_is_left_out_of_a_figure(tmp_path: Path) -> None:
    """OT alone, not trained from scratch: everything else is missing, and the figure is drawn all the same."""
    made_records.write(tmp_path, sweep("cifar10", "vgg14"))
    drawn = draw("accuracy-vs-cost", Records(tmp_path), tmp_path / "figures")
    assert [path.name for path in drawn] == [f"accuracy-vs-cost-cifar10-vgg14.{kind}" for kind in ("svg", "png")]


def test_points_are_means_over_seeds(tmp_path: Path) -> None:
    accuracies = {0: 0.93, 1: 0.95}
    made_records.write(tmp_path, seeds("cifar10", "ot")[:2], lambda needed: with_accuracy(needed, accuracies))
    (point,) = points(Records(tmp_path), [seeds("cifar10", "ot")[0]])
    assert point.seeds() == 2 and point.accuracy("finetuned") == pytest.approx(Spread(94.0, 1.0))
    found = column(Records(tmp_path), "cifar10", "ot")
    assert found is not None and found.seeds == 2 and found.pruned.accuracy == pytest.approx(Spread(94.0, 1.0))
    assert found.pruned.total.mean == pytest.approx(sum(layer.mean for layer in found.pruned.layers))


def with_accuracy(needed: Needed, accuracies: dict[int, float]) -> dict[str, Any]:
    record = made_records.record(needed)
    record["results"]["accuracy_finetuned"] = accuracies[needed.experiment.training.seed]
    return record


def test_without_records_no_claim_is_judged() -> None:
    assert {claim.verdict for claim in claims(Records(NOWHERE))} == {Verdict.OPEN}


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Needed], dict[str, Any]]:
    def make(needed: Needed) -> dict[str, Any]:
        record = made_records.record(needed)
        change(record["results"])
        return record

    return make


def test_verdicts_follow_the_records(tmp_path: Path) -> None:
    made_records.write(tmp_path, [*sweep("cifar10", "vgg14"), *slimming("cifar10", "vgg14")])
    assert verdict(Records(tmp_path), "OT is more accurate than NS")[0] is Verdict.HOLDS
    assert verdict(Records(tmp_path), "OT's architectures")[0] is Verdict.OPEN
    made_records.write(tmp_path, slimming("cifar10", "vgg14"), changed(lambda r: r.update(accuracy_finetuned=0.99)))
    judged, evidence = verdict(Records(tmp_path), "OT is more accurate than NS")
    assert judged is Verdict.FAILS and re.search(
        r"VGG-14 on CIFAR-10: -\d\.\d\d points on average of \d networks", evidence
    )


def test_a_stage_is_told_of_the_seeds_that_have_been_through_it(tmp_path: Path) -> None:
    """The second seed costs less and is not fine-tuned: neither its cost nor its accuracy belong to fine-tuning."""
    needs = seeds("cifar10", "ot")[:2]
    made_records.write(tmp_path, needs[:1])
    made_records.write(tmp_path, needs[1:], changed(lambda results: _halved(results).pop("accuracy_finetuned")))
    (point,) = points(Records(tmp_path), needs[:1])
    alone = made_records.record(needs[0])["results"]
    assert (point.seeds("finetuned"), point.seeds()) == (1, 2)
    assert point.accuracy("finetuned").mean == pytest.approx(100 * alone["accuracy_finetuned"])
    assert point.cost("flops", "finetuned").mean < point.cost("flops").mean
    assert point.gain("finetuned", "sparse") == pytest.approx(
        100 * (alone["accuracy_finetuned"] - alone["accuracy_sparse"])
    )
    found = column(Records(tmp_path), "cifar10", "ot")
    assert found is not None and (found.seeds, found.finetuned) == (2, 1)
    assert "OT, here (2 seeds, 1 fine-tuned)" in "\n".join(statistics(Records(tmp_path)))
    assert re.search(r"\| OT \| λ=2e-4 \|.* % \(1\) \|", "\n".join(sweeps(Records(tmp_path))))


def _halved(results: dict[str, Any]) -> dict[str, Any]:
    results["cost_after"] = {kind: cost // 2 for kind, cost in results["cost_after"].items()}
    return results


def test_one_bad_seed_is_enough_for_recalibration_to_lose(tmp_path: Path) -> None:
    """The mean of the seeds would not show it."""
    made_records.write(tmp_path, seeds("cifar10", "ot")[:8], changed(recalibrated_by(0.0)))
    made_records.write(tmp_path, seeds("cifar10", "ot")[8:9], changed(recalibrated_by(-0.008)))
    judged, evidence = verdict(Records(tmp_path), "New: recalibrated")
    assert judged is Verdict.FAILS and "-0.80 points at worst, over 0.5 lost by 1 of 9" in evidence


def test_slimming_that_empties_layers_is_told(tmp_path: Path) -> None:
    def emptied(results: dict[str, Any]) -> None:
        results["layers"][3].update(kept=1, negligible=results["layers"][3]["channels"])

    needs = slimming("cifar10", "vgg14")
    made_records.write(tmp_path, [*sweep("cifar10", "vgg14"), *needs])
    assert "emptied" not in verdict(Records(tmp_path), "OT is more accurate than NS")[1]
    assert verdict(Records(tmp_path), "NS can prune no more FLOPs")[0] is Verdict.FAILS
    past = [needed for needed in needs if pruned_share(made_records.record(needed)["results"], "flops") > 53]
    made_records.write(tmp_path, past, changed(emptied))
    told = f"emptied whole layers of {counted(len(past), 'network')}"
    assert past and told in verdict(Records(tmp_path), "OT is more accurate than NS")[1]
    judged, evidence = verdict(Records(tmp_path), "NS can prune no more FLOPs")
    assert judged is Verdict.HOLDS and ", 1 layer at " in evidence
    made_records.write(tmp_path, needs[:1], changed(emptied))
    assert verdict(Records(tmp_path), "NS can prune no more FLOPs")[0] is Verdict.FAILS


def test_layers_that_keep_more_for_others_are_not_emptied(tmp_path: Path) -> None:
    """Tied by a sum to others, a layer may keep channels that are all negligible."""

    def tied(results: dict[str, Any]) -> None:
        results["layers"][3]["negligible"] = results["layers"][3]["channels"]

    made_records.write(tmp_path, slimming("cifar10", "vgg14"), changed(tied))
    assert {point.emptied for point in points(Records(tmp_path), slimming("cifar10", "vgg14"))} == {0}


@pytest.mark.parametrize("lacking", ["layers", "accuracy_pruned", "accuracy_recalibrated", "accuracy_sparse"])
def test_what_a_record_lacks_is_left_out(lacking: str, tmp_path: Path) -> None:
    needs = [*sweep("cifar10", "vgg14"), *slimming("cifar10", "vgg14"), *sweep("cifar10", "resnet20")]
    made_records.write(tmp_path, needs, changed(lambda results: results.pop(lacking)))
    assert "| OT | λ=1e-4 |" in page(Records(tmp_path), NOWHERE)
    assert draw("accuracy-vs-cost", Records(tmp_path), tmp_path / "figures")


def test_a_claim_says_on_how_much_of_the_paper_it_was_measured(tmp_path: Path) -> None:
    made_records.write(tmp_path, [*sweep("cifar10", "vgg14"), *slimming("cifar10", "vgg14")])
    assert "**holds** on 1 of 6" in page(Records(tmp_path), NOWHERE)


def test_one_bad_network_is_enough_for_recalibration_to_lose(tmp_path: Path) -> None:
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), changed(recalibrated_by(-0.001)))
    assert verdict(Records(tmp_path), "New: recalibrated")[0] is Verdict.HOLDS
    made_records.write(tmp_path, sweep("cifar10", "vgg14")[:1], changed(recalibrated_by(-0.006)))
    judged, evidence = verdict(Records(tmp_path), "New: recalibrated")
    assert judged is Verdict.FAILS and "-0.60 points at worst" in evidence


def recalibrated_by(points: float) -> Callable[[dict[str, Any]], None]:
    return lambda results: results.update(accuracy_recalibrated=results["accuracy_sparse"] + points)


def test_the_headline_holds_only_where_cost_and_accuracy_do(tmp_path: Path) -> None:
    needed = sweep("cifar100", "densenet121")[-1:]
    small = {"flops": 146_000_000, "parameters": 740_000, "macs": 1}
    for accuracy, costs, expected in (
        (0.76, small, Verdict.HOLDS),
        (0.75, small, Verdict.FAILS),
        (0.76, small | {"parameters": 800_000}, Verdict.OPEN),
    ):
        change = changed(lambda r, a=accuracy, c=costs: r.update(accuracy_finetuned=a, cost_after=c))
        made_records.write(tmp_path, needed, change)
        assert verdict(Records(tmp_path), "DenseNet-121 on CIFAR-100")[0] is expected


def test_the_page_has_a_section_and_a_command_for_everything() -> None:
    text = page(Records(NOWHERE), NOWHERE)
    for name in rows():
        assert f"`otprune reproduce {name}`" in text and f'<a id="{name}"></a>' in text
    assert "![" not in text and "ILSVRC-2012 is not here" in text and "6 not run" in text
    assert re.search(r"Of \d+ claims 0 hold", text)


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
    accuracies = {0: 0.99, 1: 0.92, 2: 0.92}
    made_records.write(tmp_path, seeds("cifar10", "ot")[:3], lambda needed: with_accuracy(needed, accuracies))
    made_records.write(tmp_path, seeds("cifar10", "ns")[1:3], lambda needed: with_accuracy(needed, {1: 0.93, 2: 0.93}))
    claim = better_over_seeds(Records(tmp_path))
    assert claim.verdict is Verdict.FAILS and "-1.00 points on average of 2 seeds" in claim.evidence
    assert claim.scope == "on 1 of 2"


def test_the_page_names_figures_that_can_be_drawn_and_says_why_others_cannot(
    read_twice: tuple[Records, Records], tmp_path: Path
) -> None:
    records, again = read_twice
    shown = set(re.findall(r"\(figures/(.*?)\.svg\)", page(records, NOWHERE)))
    drawn = {sketch.stem for figure in FIGURES.values() for sketch in figure(again)}
    assert shown == drawn and {"threshold-demo", "layer-distributions", "iterative", "resnet20"} <= shown
    (needed,) = row("layer-distributions").needs
    made_records.write(tmp_path, [needed], changed(lambda results: results.pop("gammas")))
    text = page(Records(tmp_path), NOWHERE)
    assert "1 γ not recorded" in text and "figures/layer-distributions" not in text


def test_remarks_stand_with_what_they_are_about(tmp_path: Path) -> None:
    (tmp_path / "statistics.md").write_text("The learning rate differs.\n")
    section = page(Records(NOWHERE), tmp_path).partition('<a id="statistics">')[2].partition("<a id=")[0]
    assert "The learning rate differs." in section


def test_the_committed_page_is_up_to_date_with_the_records() -> None:
    assert page(Records(ROOT / "results"), REMARKS) == PAGE.read_text(encoding="utf-8"), "run `make reproduction`"


def test_every_figure_of_the_committed_page_is_there() -> None:
    named = re.findall(r"\((figures/.*?)\)", PAGE.read_text(encoding="utf-8"))
    assert all((PAGE.parent / name).exists() for name in named)


def reproduce(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_without_a_name_everything_is_listed_with_what_is_there(tmp_path: Path) -> None:
    made_records.write(tmp_path, [replace(needed, scratch=False) for needed in sweep("cifar10", "vgg14")])
    done = reproduce("--results", tmp_path)
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in rows())
    lines = {line.split()[1]: line for line in done.output.splitlines() if line.startswith("│")}
    assert "7 of 83" in lines["without-training"] and "0 of 83" in lines["accuracy-vs-cost"]


def test_draw_only_runs_nothing_and_draws_what_is_there(all_made: Path, tmp_path: Path) -> None:
    folders = ("--results", all_made, "--figures", tmp_path / "figures", "--out", tmp_path / "runs")
    done = reproduce("iterative", "--draw-only", *folders)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["iterative.png", "iterative.svg"]
    assert not (tmp_path / "runs").exists()


def test_what_is_complete_is_only_drawn(all_made: Path, tmp_path: Path) -> None:
    before = json.dumps(sorted(str(path) for path in all_made.rglob("*")))
    folders = ("--results", all_made, "--figures", tmp_path / "figures", "--out", tmp_path / "runs")
    done = reproduce("layer-distributions", "--device", "cpu", *folders)
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "runs").exists() and json.dumps(sorted(str(path) for path in all_made.rglob("*"))) == before


def test_a_table_is_printed(all_made: Path, tmp_path: Path) -> None:
    done = reproduce("baselines", "--draw-only", "--results", all_made, "--figures", tmp_path)
    assert done.exit_code == 0 and "| VGG-14 on CIFAR-10 | 314.59 | 314.59 | +0.00 |" in done.output


def test_a_place_that_nothing_begins_with_is_refused(tmp_path: Path) -> None:
    done = reproduce("iterative", "--only", "cifar99/vgg14", "--results", tmp_path)
    assert done.exit_code == 1 and "no record of iterative begins with cifar99/vgg14" in done.stderr
    assert "cifar10/vgg14" in done.stderr


@pytest.mark.parametrize(("flags", "what"), [(("--only", "cifar10"), "run"), (("--draw-only",), "draw")])
def test_flags_that_need_a_name_are_not_passed_over(flags: tuple[str, ...], what: str) -> None:
    done = reproduce(*flags)
    assert done.exit_code == 1 and done.stderr.startswith(f"name what to {what}: one of baselines, ")


def test_records_that_cannot_be_kept_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = reproduce("statistics", "--results", tmp_path / "taken", "--out", tmp_path / "runs", "--device", "cpu")
    assert done.exit_code == 1 and "taken is no folder" in done.stderr and not (tmp_path / "runs").exists()


def test_a_wrong_name_is_refused_in_one_line() -> None:
    done = reproduce("statistic")
    assert done.exit_code == 1 and done.stderr == "the paper has no statistic here; did you mean statistics?\n"
