"""Figures, verdicts and the page follow from the records that there are, and say what is missing."""

import re
import xml.dom.minidom
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rc_context
from PIL import Image

from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import baseline, pruned
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import row, rows, seeds, slimming, sweep, sweeps_of_resnet20
from otprune.report.claims import claims
from otprune.report.columns import column
from otprune.report.figures import FIGURES, draw
from otprune.report.over_seeds import statistics
from otprune.report.page import page
from otprune.report.points import points, pruned_share
from otprune.report.scoreboard import GLOSSARY, SUBJECTS
from otprune.report.scoreboard import NAME as SCOREBOARD
from otprune.report.style import LOOK
from otprune.report.tables import resnet20, sweeps
from otprune.report.verdicts import Verdict
from tests import made_records
from tests.made_records import changed, with_accuracy
from tools.reproduction_page import PAGE, REMARKS, ROOT

NOWHERE = Path("nowhere")


@pytest.fixture(scope="module")
def all_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_records.everything(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def read_twice(all_made: Path) -> tuple[Records, Records]:
    """The same records, from two looks at the files."""
    return Records(all_made), Records(all_made)


def verdict(records: Records, beginning: str) -> tuple[Verdict, str]:
    found = next(claim for claim in claims(records) if claim.text.startswith(beginning))
    return found.verdict, found.evidence


@pytest.mark.parametrize(
    ("shift", "stage", "accuracy", "edge", "mending"),
    [
        (0, "pruned", 0.937, True, True),
        (-1, "pruned", 0.930, False, True),
        (0.1, "pruned", 0.9355, False, True),
        (0.1, "finetuned", 0.9358, True, False),
        (0.1, "finetuned", 0.9380, True, False),
    ],
)
def test_a_loss_past_the_threshold_counts_where_it_is_more_than_what_may_be_lost_up_to_it(
    shift: float, stage: str, accuracy: float, edge: bool, mending: bool, tmp_path: Path
) -> None:
    """By the same half of a point on both sides: 0.12 points are no damage, neither before nor past."""
    (needed,) = row("threshold-demo").needs
    content = made_records.record(needed) | {"accuracy_sparse": 0.937}
    for one in content["shifts"]:
        one["accuracy_pruned"] = 0.937 if one["shift"] <= 0 else 0.9
        one |= {f"accuracy_{stage}": accuracy} if one["shift"] == shift else {}
    made_records.write(tmp_path, [needed], lambda _: content)
    judged = [one.judged.popitem()[1] for one in claims(Records(tmp_path)) if one.row == "threshold-demo"]
    assert judged == [edge, mending]


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


def test_without_records_no_claim_is_judged() -> None:
    assert {claim.verdict for claim in claims(Records(NOWHERE))} == {Verdict.OPEN}


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
    (sketch,) = FIGURES["without-training"](Records(tmp_path))
    assert sketch.caption.endswith(
        "Each point is the mean over its seeds, 2 of them; bars are their standard deviation."
    )
    (sketch,) = FIGURES["accuracy-vs-cost"](Records(tmp_path))
    assert "over its seeds, 1 to 2 of them" in sketch.caption  # after the first epoch, and at the end


def test_the_table_of_resnet20_says_of_how_many_seeds_where_not_all_are_fine_tuned(tmp_path: Path) -> None:
    """What was pruned is that of the first seed alone, as its accuracy is."""
    first = sweep("cifar10", "resnet20")[0]
    second = pruned("cifar10", "resnet20", first.experiment.training.lam, seed=1)
    made_records.write(tmp_path, [first])
    alone, _ = resnet20(Records(tmp_path))
    made_records.write(tmp_path, [second], changed(lambda results: _halved(results).pop("accuracy_finetuned")))
    both, said, _ = resnet20(Records(tmp_path))
    one, two = (table.splitlines()[2].split(" | ") for table in (alone, both))
    assert (one[2:5], one[-1]) == (two[2:5], "1 |") and two[-1] == "2 |" and two[8] == f"{one[8]} (1)"
    assert said.startswith("In brackets: of how many of the seeds") and "What was pruned is that of the seeds" in said


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
    assert (
        past
        and "all broken by NS: whole layers emptied" in verdict(Records(tmp_path), "OT is more accurate than NS")[1]
    )
    by_parameters = verdict(Records(tmp_path), "In most cases OT")[1]
    assert f"{len(past)} broken by NS: whole layers emptied" in by_parameters and "ahead at" in by_parameters
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


@pytest.mark.parametrize(
    "lacking", ["layers", "removed", "accuracy_pruned", "accuracy_recalibrated", "accuracy_sparse"]
)
def test_what_a_record_lacks_is_left_out(lacking: str, tmp_path: Path) -> None:
    needs = [*sweep("cifar10", "vgg14"), *slimming("cifar10", "vgg14"), *sweep("cifar10", "resnet20")]
    needs += [needed for rule in ("ot", "ns") for needed in seeds("cifar10", rule)]
    made_records.write(tmp_path, needs, changed(lambda results: results.pop(lacking)))
    assert "| OT | λ=1e-4 |" in page(Records(tmp_path), NOWHERE)
    assert draw("accuracy-vs-cost", Records(tmp_path), tmp_path / "figures")


def test_the_table_of_resnet20_tells_how_many_whole_branches_went(tmp_path: Path) -> None:
    two = [f"blocks.{block}.{layer}" for block in (4, 5) for layer in ("conv1", "bn1", "conv2", "bn2")]
    first, second, third, *_ = sweep("cifar10", "resnet20")
    made_records.write(tmp_path, [first])
    made_records.write(tmp_path, [second], changed(lambda results: results.update(removed=two)))
    made_records.write(tmp_path, [third], changed(lambda results: results.pop("removed")))
    header, _, *lines = (line.split(" | ") for line in next(resnet20(Records(tmp_path))).splitlines())
    at = header.index("whole branches gone")
    assert [line[at] for line in lines] == ["0", "2", "–", "–", "–"]  # of Ye et al.'s two nobody knows


def test_a_claim_says_on_how_much_of_the_paper_it_was_measured(tmp_path: Path) -> None:
    made_records.write(tmp_path, [*sweep("cifar10", "vgg14"), *slimming("cifar10", "vgg14")])
    assert "**holds** (measured on 1 of 6)" in page(Records(tmp_path), NOWHERE)


def test_one_bad_network_is_enough_for_recalibration_to_lose(tmp_path: Path) -> None:
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), changed(recalibrated_by(-0.001)))
    assert verdict(Records(tmp_path), "New: recalibrated")[0] is Verdict.HOLDS
    made_records.write(tmp_path, sweep("cifar10", "vgg14")[:1], changed(recalibrated_by(-0.006)))
    judged, evidence = verdict(Records(tmp_path), "New: recalibrated")
    assert judged is Verdict.FAILS and "-0.60 points at worst" in evidence


def recalibrated_by(points: float) -> Callable[[dict[str, Any]], None]:
    return lambda results: results.update(accuracy_recalibrated=results["accuracy_sparse"] + points)


@pytest.mark.parametrize(
    ("shares", "losses", "mark"),
    [
        ((30.0, 75.0), (0.5, 3.0), "✓"),
        ((30.0, 75.0), (0.5, 9.0), "✗"),
        ((45.0, 75.0), (1.0, 3.0), "✓"),  # their mildest network is out of reach; on their line it would lose 1.64
        ((45.0, 75.0), (1.7, 3.0), "✗"),
        ((30.0, 40.0), (0.5, 0.6), "?"),
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
    assert found[f"{way} loses less accuracy than Ye et al. report"].mark("ResNet-20 on CIFAR-10") == mark
    assert found["OT loses less accuracy than Ye et al. report"].mark("ResNet-20 on CIFAR-10") == "·"
    assert ("it removes at most 40 %" in found[f"{way} loses less accuracy than Ye et al. report"].evidence) is (
        mark == "?"
    )


def test_networks_that_only_guess_are_left_out_of_what_fine_tuning_gains(tmp_path: Path) -> None:
    made_records.write(tmp_path, sweep("cifar100", "vgg14"))
    needs = slimming("cifar100", "vgg14")
    made_records.write(tmp_path, needs)
    before = verdict(Records(tmp_path), "NS needs the other")[1]
    guessing = changed(lambda found: found.update(accuracy_finetuned=0.01, accuracy_finetuned_1=0.01))
    made_records.write(tmp_path, needs[-2:], guessing)
    after = verdict(Records(tmp_path), "NS needs the other")[1]
    assert "average of 7 networks" in before and "average of 5 networks" in after
    assert after.endswith("2 networks of NS that only guess are left out")


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
    assert re.search(r"Of the paper's \d+ claims 0 hold .* of 6 that are new here it is 0, 0 and 6", text)


def test_the_overview_marks_where_each_claim_holds(tmp_path: Path) -> None:
    made_records.write(tmp_path, [*sweep("cifar10", "vgg14"), *slimming("cifar10", "vgg14")])
    worse = changed(lambda found: found.update(accuracy_recalibrated=0.5))
    made_records.write(tmp_path, sweep("cifar100", "vgg14"), worse)
    marks = {claim.name: list(map(claim.mark, SUBJECTS)) for claim in claims(Records(tmp_path))}
    assert marks["OT is more accurate than NS, 50 % of the FLOPs pruned or more"] == ["✓", *["·"] * 5, ""]
    assert marks["New: recalibrated, not fine-tuned, OT loses at most 0.5 points"] == ["✗", "✗", *["·"] * 4, ""]
    assert marks["whole residual branches can be removed"] == ["", "", "", "·", "", "·", "·"]
    assert marks["OT is more accurate than NS on ILSVRC-2012"] == [""] * 7


def test_the_overview_has_room_for_its_labels_and_explains_what_they_abbreviate(all_made: Path) -> None:
    (sketch,) = FIGURES[SCOREBOARD](Records(all_made))
    there = {claim.name for claim in claims(Records(all_made))}
    with rc_context(LOOK):
        drawn = sketch.draw()
        drawn.draw_without_rendering()
        (ax,) = drawn.axes
        labels = [text for text in ax.texts if text.get_text() in there]
        ends = [ax.transData.inverted().transform(text.get_window_extent().max)[0] for text in labels]
    assert len(labels) == len(there) and max(ends) < -0.25  # the first marks are around 0
    used = {word for name in there for word in re.findall(r"\b[A-Z]{2,}\b", name)} - {"ILSVRC"}
    assert used == {"OT", "NS", "ISTA"} and all(f"{word}: " in GLOSSARY for word in used)


def texts_of_rounds(records: Records) -> list[set[str]]:
    """What is written in each panel of the figure of rounds; its title is checked to name λ."""
    (sketch,) = FIGURES["iterative"](records)
    drawn = sketch.draw()
    assert "pruning in rounds, λ=1e-4" in sketch.caption and "λ=1e-4" in str(drawn.get_suptitle())
    return [{text.get_text() for text in ax.texts} for ax in drawn.axes]


def test_the_figure_of_rounds_names_every_lambda_and_says_what_is_not_recorded(all_made: Path, tmp_path: Path) -> None:
    whole = texts_of_rounds(Records(all_made))
    for panel in whole:
        assert {point.label for point in points(Records(all_made), sweep("cifar10", "vgg14"))} <= panel
        assert not any("recorded yet" in text for text in panel)
    ot_finetuned, _, ns_finetuned, _ = row("iterative").needs
    made_records.write(tmp_path, [ot_finetuned])
    assert "no rounds of NS are recorded yet" in texts_of_rounds(Records(tmp_path))[0]
    made_records.write(tmp_path, [ns_finetuned])
    finetuned, scratch = texts_of_rounds(Records(tmp_path))
    assert not any("recorded yet" in text for text in finetuned) and "no rounds of OT or NS are recorded yet" in scratch


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
