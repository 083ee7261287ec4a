"""Figures, verdicts and the page follow from the records that there are, and say what is missing."""

import re
import xml.dom.minidom
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rc_context
from PIL import Image

from otprune.experiments.paper import Spread
from otprune.experiments.reproduce.needed import pruned
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import row, rows, seeds, slimming, sweep
from otprune.report.claims import claims
from otprune.report.columns import column
from otprune.report.costs import accuracy_vs_cost
from otprune.report.figures import FIGURES, draw
from otprune.report.over_seeds import statistics
from otprune.report.page import page
from otprune.report.points import points
from otprune.report.scoreboard import GLOSSARY
from otprune.report.scoreboard import NAME as SCOREBOARD
from otprune.report.style import LOOK
from otprune.report.tables import resnet20, sweeps
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


def test_a_network_that_is_broken_after_one_epoch_does_not_squash_the_others(tmp_path: Path) -> None:
    """What is dotted may lie below the picture; caps of bars over one seed are no points."""
    late = changed(lambda found: found.update(accuracy_finetuned=0.93, accuracy_finetuned_1=0.7))
    made_records.write(tmp_path, sweep("cifar10", "vgg14"), late)
    (sketch,) = accuracy_vs_cost(Records(tmp_path))
    assert sketch.draw().axes[0].get_ylim()[0] > 90


def test_points_are_means_over_seeds(tmp_path: Path) -> None:
    accuracies = {0: 0.93, 1: 0.95}
    made_records.write(tmp_path, seeds("cifar10", "ot")[:2], lambda needed: with_accuracy(needed, accuracies))
    (point,) = points(Records(tmp_path), [seeds("cifar10", "ot")[0]])
    assert point.seeds() == 2 and point.accuracy("finetuned") == pytest.approx(Spread(94.0, 1.0))
    found = column(Records(tmp_path), "cifar10", "ot")
    assert found is not None and found.seeds == 2 and found.pruned.accuracy == pytest.approx(Spread(94.0, 1.0))
    assert found.pruned.total.mean == pytest.approx(sum(layer.mean for layer in found.pruned.layers))


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


def test_the_page_has_a_section_and_a_command_for_everything() -> None:
    text = page(Records(NOWHERE), NOWHERE)
    for name in rows():
        assert f"`otprune reproduce {name}`" in text and f'<a id="{name}"></a>' in text
    assert "![" not in text and "ILSVRC-2012 is not here" in text and "6 not run" in text
    assert re.search(r"Of the paper's \d+ claims, \d+ are not measured yet\. Nothing was run yet of VGG-14", text)
    assert "Of 7 that are new here, 7 are not measured yet." in text


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
