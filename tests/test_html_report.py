import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import otprune as ot
from otprune import models
from otprune.cli import app
from otprune.errors import TrainingError
from otprune.experiments.experiment import Bounds, Experiment
from otprune.experiments.folder import CONFIGURATION
from otprune.report.html.content import content
from otprune.report.html.costs import STOPS, with_costs
from otprune.report.html.figures import draw, sketches
from otprune.report.html.page import page
from otprune.report.html.subjects import NO_WEIGHTS, subjects
from tests.html_reports import (
    HOSTILE,
    VGG,
    answer,
    depthwise,
    described,
    record,
    run_folder,
    small,
    with_drawn_gammas,
    write,
)

COSTS = {
    "cost_before": {"flops": 4_000_000, "parameters": 200_000},
    "cost_after": {"flops": 1_000_000, "parameters": 100_000},
}


@pytest.mark.parametrize("name", ["vgg14", "resnet20", "digits_net"])
def test_the_sums_of_the_page_are_those_of_the_planner(name: str) -> None:
    model = with_drawn_gammas(models.build(name, num_classes=10), seed=3)
    example = torch.zeros(1, *models.image_shape(name))
    network = with_costs(model, example, delta=0.37)  # which the sums are tried at too
    assert network.widths is not None and not network.stops
    assert (network.flops, network.parameters) == (ot.cost(model, example).flops, ot.cost(model, example).parameters)


def test_branches_go_in_the_networks_that_sums_are_tried_on() -> None:
    model = with_drawn_gammas(models.build("resnet20", num_classes=10), seed=3)
    assert ot.plan(model, torch.zeros(1, 3, 32, 32)).removed


def test_a_network_that_sums_are_wrong_for_gets_a_table_of_plans() -> None:
    model, example = with_drawn_gammas(depthwise(), whole=0), torch.zeros(1, 3, 16, 16)
    network = with_costs(model, example, delta=1e-3)
    assert network.widths is None
    assert [stop.delta for stop in network.stops] == sorted({1e-3, *STOPS})
    stop = next(stop for stop in network.stops if stop.delta == 1e-3)
    plan = ot.plan(model, example, ot.OptimalThreshold(1e-3))
    assert stop.kept == [len(layer.kept) for layer in plan.layers]
    assert stop.flops == ot.cost(ot.prune(model, plan), example).flops


@pytest.mark.parametrize("bounds", [Bounds(max_ratio=0.3, round_to=1), Bounds(max_ratio=1.0, round_to=5)], ids=str)
def test_a_table_is_made_where_a_plan_keeps_more_than_thresholds_say(bounds: Bounds) -> None:
    model, example = with_drawn_gammas(small(), whole=0), torch.zeros(1, 3, 8, 8)
    assert not with_costs(model, example, delta=1e-3).stops
    stop = next(stop for stop in with_costs(model, example, 1e-3, bounds).stops if stop.delta == 1e-3)
    plan = ot.plan(model, example, ot.OptimalThreshold(1e-3), **bounds)
    assert stop.kept == [len(layer.kept) for layer in plan.layers]


@pytest.mark.parametrize(
    ("asked", "found"), [({"round_to": 8}, {}), ({"latency": "1ms"}, {"latency": {"round_to": 8}})], ids=str
)
def test_what_a_run_rounded_to_holds_in_its_page(asked: dict[str, Any], found: dict[str, Any], tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    for name, more in (("config.json", {"pruning": asked}), ("results.json", found)):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | more), encoding="utf-8")
    shown = content(subjects([folder]))
    stops = shown["networks"][shown["runs"][0]["network"]]["stops"]
    assert stops and all(kept % 8 == 0 for stop in stops for kept in stop["kept"])
    assert ["channels kept at", "multiples of 8"] in [list(fact) for fact in shown["runs"][0]["facts"]]


def test_scaling_factors_in_the_page_are_those_of_the_weights_to_the_last_bit(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    model = ot.load(models.build("digits_net", num_classes=10), folder / "sparse.safetensors")
    for one in content(subjects([folder]))["runs"][0]["gammas"]:
        assert torch.equal(torch.tensor(one["values"]), model.get_submodule(one["layer"]).weight)


def test_the_networks_of_runs_alike_are_in_the_page_once(tmp_path: Path) -> None:
    places = [record(tmp_path, name, "tests.html_reports:small") for name in ("a", "b")]
    shown = content(subjects(places))
    assert [run["network"] for run in shown["runs"]] == [0, 0] and len(shown["networks"]) == 1


def test_a_record_gives_what_its_run_measured() -> None:
    shown = content(subjects([VGG]))
    run, recorded = shown["runs"][0], json.loads(VGG.read_text(encoding="utf-8"))["results"]
    assert run["gained"]["flops"] == [recorded["cost_before"]["flops"], recorded["cost_after"]["flops"]]
    assert run["notes"] == [NO_WEIGHTS]
    assert answer(VGG, 1e-3)[:2] == (recorded["cost_after"]["flops"], recorded["cost_after"]["parameters"])


def test_what_a_record_lacks_is_left_out_and_said(tmp_path: Path) -> None:
    without = write(tmp_path / "old.json", described("digits_net"))
    unknown = write(tmp_path / "own.json", described("nowhere.py:net", gammas={"bn": [1.0]}))
    runs = content(subjects([without, unknown]))["runs"]
    assert [run["network"] for run in runs] == [None, None]
    assert runs[0]["left_out"] == "its scaling factors were not recorded"
    assert "nowhere.py" in runs[1]["left_out"]


def test_a_loss_that_was_no_number_is_left_out(tmp_path: Path) -> None:
    epochs = [{"epoch": 1, "loss": float("nan"), "accuracy": 0.1, "flops": None, "lam": 0.0}]
    place = write(tmp_path / "diverged.json", described("digits_net", training=epochs))
    shown = content(subjects([place]))
    assert shown["runs"][0]["trainings"][0]["loss"] == [None]
    page(shown)


def test_latencies_of_a_later_round_say_that_the_original_was_timed_unpruned(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    path = folder / "results.json"
    later = {"cost_sparse": {"flops": 3_000_000, "parameters": 150_000}}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | later), encoding="utf-8")
    (row,) = content(subjects([folder]))["runs"][0]["latencies"]
    assert row["name"] == "torch, cpu, before: unpruned"


def test_latencies_are_those_of_the_run_alone(tmp_path: Path) -> None:
    run = content(subjects([run_folder(tmp_path / "run")]))["runs"][0]
    assert run["latencies"] == [{"name": "torch, cpu", "before": 4.0, "after": 1.0}]


@pytest.mark.parametrize(("threads", "where"), [(1, "openvino, cpu"), (4, "openvino, cpu, 4 threads")])
def test_the_latency_that_a_run_was_pruned_to_is_shown_with_its_unit(threads: int, where: str, tmp_path: Path) -> None:
    found = {"budget_ms": 0.07, "unpruned_ms": 0.161, "predicted_ms": 0.068, "measured_ms": 0.069, "round_to": 8}
    made = described("digits_net", latency=found)
    place = write(tmp_path / "quick.json", made)
    assert content(subjects([place]))["runs"][0]["latencies"] == []  # an earlier pruning's
    made["experiment"]["pruning"] = {"latency": "70us", "latency_runtime": "openvino", "latency_threads": threads}
    run = content(subjects([write(place, made)]))["runs"][0]
    assert run["latencies"] == [{"name": f"{where}, when pruned", "before": 0.161, "after": 0.069}]
    assert ("thresholds shifted to meet", "a latency of 0.07 ms") in run["facts"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"flops": 0.4}, "40 % of the FLOPs"),
        ({"params": 0.25}, "25 % of the parameters"),
        ({"max_drop": 0.5}, "a loss of at most 0.5 points of accuracy"),
    ],
)
def test_what_thresholds_are_shifted_to_meet_is_said(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    made = described("digits_net")
    made["experiment"] |= {"pruning": asked, "hold_out": 0.1}
    run = content(subjects([write(tmp_path / "run.json", made)]))["runs"][0]
    assert ("thresholds shifted to meet", said) in run["facts"]


def test_accuracies_of_exported_files_stand_beside_the_others(tmp_path: Path) -> None:
    run = content(subjects([run_folder(tmp_path / "run")]))["runs"][0]
    assert run["accuracies"][-2:] == [("fine-tuned", 0.91), ("exported, finetuned.onnx", 0.905)]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    places = [record(tmp_path / folder, "run", "tests.html_reports:small") for folder in ("a", "b", "other/a")]
    assert [subject.name for subject in subjects(places[:2])] == ["a/run", "b/run"]
    assert [subject.name for subject in subjects(places)] == ["a/run (1)", "b/run", "a/run (3)"]


def test_a_run_that_is_given_twice_is_in_the_report_once(tmp_path: Path) -> None:
    first, second = (record(tmp_path, name, "tests.html_reports:small") for name in ("first", "second"))
    assert [subject.name for subject in subjects([second, first, second])] == ["second", "first"]


def test_what_is_no_run_is_refused_with_what_to_give(tmp_path: Path) -> None:
    write(tmp_path / "sweep/lam1e-4" / CONFIGURATION, Experiment("vgg14", "cifar10").to_dict())
    with pytest.raises(TrainingError, match=r"sweep: holds no run.*Give some of those in it: lam1e-4"):
        subjects([tmp_path / "sweep"])
    with pytest.raises(TrainingError, match=r"demo\.json: is not the record of one run"):
        subjects([VGG.parents[2] / "demo.json"])
    with pytest.raises(TrainingError, match=r"several rounds\. Leave it out, or give the folders of rounds"):
        subjects([VGG.parent / "rounds-ot-finetuned-lam1e-4-seed0.json"])


def test_the_page_asks_for_nothing_and_obeys_nothing_else() -> None:
    text = page({"version": "1", "runs": [{"title": HOSTILE, "name": HOSTILE}], "networks": [], "paper": []})
    assert set(re.findall(r"https?://[^'\"\s]+", text)) == {"http://www.w3.org/2000/svg"}
    assert text.count("<script") == text.count("</script>") == 2
    assert "default-src 'none'" in text and "unsafe" not in text.partition("</head>")[0].partition("<style>")[0]
    assert "<img" not in text


def test_names_that_are_no_text_at_all_do_no_harm(tmp_path: Path) -> None:
    place = write(tmp_path / "odd.json", described("digits_net", remarks=["\udcff \u2028"]))
    page(content(subjects([place]))).encode()


def test_the_page_is_written_over_no_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("work = 1")
    done = CliRunner().invoke(app, ["report", str(VGG), "--out", str(tmp_path / "mine.py")])
    assert done.exit_code == 1 and "mine.py: is there, and no .html that could be written anew" in done.stderr
    assert (tmp_path / "mine.py").read_text() == "work = 1"


def test_the_command_writes_the_page_and_the_figures(tmp_path: Path) -> None:
    out, figures = tmp_path / "deep/report.html", tmp_path / "figures"
    place = record(tmp_path, "a run", "tests.html_reports:small", **COSTS)
    done = CliRunner().invoke(app, ["report", str(place), "-o", str(out), "--figures", str(figures)])
    assert done.exit_code == 0, done.output
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    names = {path.name for path in figures.iterdir()}
    assert {
        "a-run-layers.svg",
        "a-run-training.png",
        "accuracy-against-cost-tests.html-reports-small-on-digits.svg",
    } <= names


def test_a_page_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(VGG), "-o", str(tmp_path)])
    assert (done.exit_code, done.output) == (1, f"{tmp_path}: is a folder: name the file to write\n")


def test_a_command_about_nothing_ends_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere")])
    assert done.exit_code == 1 and "there is no such folder or file" in done.output


def test_figures_have_names_that_files_can_have(tmp_path: Path) -> None:
    shown = {"runs": [_bare("../$x^2 a"), _bare("../$x^2/a")], "paper": []}
    assert [sketch.stem for sketch in sketches(shown)] == ["x-2-a-1-network", "x-2-a-2-network"]
    assert len(draw(shown, tmp_path)) == 4
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_figures_have_the_thresholds_that_the_run_was_pruned_at(shift: float, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", shift=shift)
    shown = content(subjects([folder]))
    model = ot.load(models.build("digits_net", num_classes=10), folder / "sparse.safetensors")
    gammas = {one["layer"]: model.get_submodule(one["layer"]).weight for one in shown["runs"][0]["gammas"]}
    wanted = ot.Shifted(ot.OptimalThreshold(), shift).thresholds(gammas)
    drawn = next(sketch for sketch in sketches(shown) if sketch.stem == "run-layers").draw()
    lines = [[line.get_xdata()[0] for line in ax.lines] for ax in drawn.axes if ax.get_visible()]
    assert lines == [pytest.approx([limit, wanted.branch]) for limit in wanted.layers.values()]


def test_a_training_of_one_epoch_is_a_marker_and_a_longer_one_a_line() -> None:
    for epochs, marker in ((1, "o"), (3, "None")):
        training = {"name": "training", "epoch": list(range(1, epochs + 1)), "flops": [None] * epochs}
        training |= {"accuracy": [0.5] * epochs, "loss": [2.0] * epochs}
        (sketch,) = sketches({"runs": [_bare("run") | {"layers": [], "trainings": [training]}], "paper": []})
        assert [[line.get_marker() for line in ax.lines] for ax in sketch.draw().axes] == [[marker], [marker]]


def _bare(name: str) -> dict[str, object]:
    layers = [{"name": "$bn", "channels": 4, "kept": 2}]
    return {"name": name, "title": "net", "gammas": [], "layers": layers, "trainings": [], "shifts": None}
