"""What a run shows while it goes, and what it writes for TensorBoard: read back from real event files."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from otprune.experiments import screen, stages
from otprune.experiments.board import board, log_gammas
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report, Several
from otprune.experiments.screen import measured_table, progress, pruning_lines, results_table
from otprune.training.data import Dataset, Images
from otprune.training.run import EpochRecord, Run
from tests.small_runs import CPU, DIGITS, EXPERIMENT, TRAINING, BreakOff, loaded, pipeline

FEW = Dataset(  # an epoch is one step
    Images(DIGITS.train.pixels[:64], DIGITS.train.labels[:64]), DIGITS.test, DIGITS.classes, DIGITS.mean, DIGITS.std
)


def short(folder: Path, epochs: int) -> Pipeline:
    experiment = replace(EXPERIMENT, training=replace(TRAINING, epochs=epochs))
    return Pipeline(experiment, folder, FEW, CPU)


def events(folder: Path, stage: str) -> EventAccumulator:
    found = EventAccumulator(str(folder / "tensorboard" / stage), size_guidance={"histograms": 0, "scalars": 0})
    return found.Reload()


def series(found: EventAccumulator, tag: str) -> dict[int, float]:
    values = found.Scalars(tag)
    assert len({event.step for event in values}) == len(values)  # no step twice
    return {event.step: event.value for event in values}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A whole run, written for TensorBoard."""
    run = pipeline(tmp_path_factory.mktemp("written"))
    with board(print) as report:
        stages.run([run], report)
        stages.scratch([run], report)
    return run


@pytest.mark.parametrize(
    ("stage", "epochs"), [("train", "training"), ("finetune", "finetuning"), ("scratch", "scratch")]
)
def test_every_epoch_of_every_stage_is_on_the_board(written: Pipeline, stage: str, epochs: str) -> None:
    found, record = events(written.folder, stage), written.results[epochs]
    for tag, name in {"loss": "loss", "accuracy": "accuracy", "learning rate": "rate", "λ": "lam"}.items():
        expected = {one["epoch"]: one[name] for one in record}
        assert series(found, tag) == pytest.approx(expected)
    speeds = series(found, "images per second")
    assert set(speeds) >= {one["epoch"] for one in record[1:]} and all(speed > 0 for speed in speeds.values())
    assert "FLOPs share" not in found.Tags()["scalars"]


def test_the_share_of_flops_is_on_the_board_where_it_was_measured(tmp_path: Path) -> None:
    run = short(tmp_path, epochs=2)
    training = Run(run.first_model(), run.data, run.experiment.training)
    with board(print) as report:
        report.epoch_ended(run, "train", training, EpochRecord(1, 0.1, 1e-4, 2.3, 0.1))
        report.epoch_ended(run, "train", training, EpochRecord(2, 0.1, 2e-4, 2.2, 0.2, flops=0.75))
    assert series(events(tmp_path, "train"), "FLOPs share") == {2: 0.75}


def test_histograms_show_how_gamma_spreads(written: Pipeline) -> None:
    found, sparse = events(written.folder, "train"), loaded(written.folder / "sparse.safetensors")
    assert sorted(found.Tags()["histograms"]) == ["log10 γ/1", "log10 γ/4"]
    for name, magnitudes in log_gammas(sparse).items():
        drawn = found.Histograms(f"log10 γ/{name}")
        assert [event.step for event in drawn] == [1, 2, 3]
        last = drawn[-1].histogram_value
        assert last.num == len(magnitudes)
        assert (last.min, last.max) == pytest.approx((float(magnitudes.min()), float(magnitudes.max())))
    assert float(min(log_gammas(sparse)["4"])) == -12  # a γ of zero


def test_a_long_training_has_about_twenty_histograms_with_the_first_and_the_last(tmp_path: Path) -> None:
    with board(print) as report:
        stages.train([short(tmp_path, epochs=45)], report)
    steps = [event.step for event in events(tmp_path, "train").Histograms("log10 γ/1")]
    assert steps[0] == 1 and steps[-1] == 45 and 12 <= len(steps) <= 20


def test_thresholds_are_on_the_board_once_the_pruned_model_trains(written: Pipeline) -> None:
    for stage in ("finetune", "scratch"):
        (event,) = events(written.folder, stage).Tensors("pruning/text_summary")
        text = event.tensor_proto.string_val[0].decode()
        for layer in written.results["layers"]:
            assert f"{layer['name']} | {layer['threshold']:.3g} | {layer['channels']} | {layer['kept']}" in text


def test_a_run_that_goes_on_takes_back_what_it_writes_again(tmp_path: Path) -> None:
    """An epoch's events were on the disk, and no checkpoint after it: it is trained, and written, a second time."""
    for epoch in (1, 3, 4):
        run, broken_off = short(tmp_path, epochs=5), BreakOff(tmp_path.name, "train", epoch)
        with board(print) as report, pytest.raises(KeyboardInterrupt):
            stages.train([run], Several(report, broken_off), save_every=0)
    run = short(tmp_path, epochs=5)
    with board(print) as report:
        stages.train([run], report)
    found = events(tmp_path, "train")
    assert series(found, "loss") == pytest.approx({one["epoch"]: one["loss"] for one in run.results["training"]})
    assert [event.step for event in found.Histograms("log10 γ/1")] == [1, 2, 3, 4, 5]


def test_what_goes_on_in_the_same_second_is_read_last(tmp_path: Path) -> None:
    """TensorBoard reads files by name: the second, then the machine, then the process, then a count without zeros."""
    run = short(tmp_path, epochs=4)
    with board(print) as report, pytest.raises(KeyboardInterrupt):
        stages.train([run], Several(report, BreakOff(tmp_path.name, "train", 3)), save_every=0)
    (first,) = (tmp_path / "tensorboard" / "train").iterdir()
    first = first.rename(first.with_name(f"events.out.tfevents.{int(time.time()) + 1:010d}.zzz.9.9"))
    with board(print) as report:
        stages.train([run], report)
    assert sorted((tmp_path / "tensorboard" / "train").iterdir())[0] == first
    found = series(events(tmp_path, "train"), "loss")
    assert found == pytest.approx({one["epoch"]: one["loss"] for one in run.results["training"]})


def test_without_tensorboard_it_is_said_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    said: list[str] = []
    with board(said.append) as report:
        stages.train([short(tmp_path, epochs=2)], report)
    assert len(said) == 1 and "pip install 'otprune[train]'" in said[0]
    assert (tmp_path / "sparse.safetensors").exists() and not (tmp_path / "tensorboard").exists()


@contextmanager
def shown(terminal: bool) -> Iterator[tuple[Report, StringIO]]:
    text = StringIO()
    with progress(Console(file=text, force_terminal=terminal, width=140)) as report:
        yield report, text


def test_in_a_file_there_is_a_line_every_ten_epochs_and_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "digits [1]"
    run = short(folder, epochs=12)
    with shown(terminal=False) as (report, text):
        stages.train([run], report)
    lines, epochs = text.getvalue().splitlines(), run.results["training"]
    assert len(lines) == 2
    for line, number in zip(lines, (10, 12), strict=True):
        loss, accuracy = epochs[number - 1]["loss"], epochs[number - 1]["accuracy"]
        assert line.startswith(f"train digits [1]: epoch {number}/12 loss {loss:.3f} accuracy {accuracy:.2%} ")
    assert lines[0].endswith(" left") and lines[1].endswith(" images/s")


def test_what_pruning_came_to_is_told_before_fine_tuning_begins(tmp_path: Path) -> None:
    run = short(tmp_path / "weak", epochs=1)
    with shown(terminal=False) as (report, text):
        stages.run([run], report)
    lines, found = text.getvalue().splitlines(), run.results
    told = [line for line in lines if line.startswith("prune weak: ")]
    assert f"accuracy {found['accuracy_sparse']:.2%} → {found['accuracy_recalibrated']:.2%} recalibrated" in told[0]
    assert "FLOPs" in told[0] and told[1:] == [f"prune weak: {remark}" for remark in found["remarks"]] != []
    assert lines.index(told[-1]) < min(i for i, line in enumerate(lines) if line.startswith("finetune"))


def in_an_epoch(folder: Path, experiment: Experiment = EXPERIMENT) -> tuple[Pipeline, Run]:
    """A training after 7 of the 21 steps of its first epoch."""
    owner = pipeline(folder, experiment)
    run = Run(owner.first_model(), owner.data, experiment.training)
    run.begin_epoch()
    for _ in range(7):
        run.advance()
    return owner, run


def test_long_epochs_have_lines_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "LINE_EVERY_SECONDS", 0.0)
    owner, run = in_an_epoch(tmp_path)
    with shown(terminal=False) as (report, text):
        report.moved(owner, "train", run)
    sums = run.step.sums()
    seen = 7 * run.training.batch
    expected = f"epoch 0.3/3 loss {sums.loss / seen:.3f} accuracy {sums.hits / seen:.2%}"
    assert expected in text.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_steps_are_not_held_up_by_looks_at_the_device(terminal: bool, tmp_path: Path) -> None:
    owner, run = in_an_epoch(tmp_path)
    look, looks = run.step.sums, []
    run.step.sums = lambda: looks.append(1) or look()  # type: ignore[func-returns-value,method-assign]
    with shown(terminal) as (report, _), board(print) as events_report:
        for _ in range(1000):
            Several(report, events_report).moved(owner, "train", run)
    assert looks == []


def test_on_a_terminal_a_bar_moves_and_a_line_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "BAR_EVERY_SECONDS", 0.0)
    owner, run = in_an_epoch(tmp_path)
    with shown(terminal=True) as (report, text):
        report.moved(owner, "train", run)
        report._bars.refresh()  # type: ignore[attr-defined]
        assert f"train {tmp_path.name}: epoch 0.3/3 loss" in text.getvalue() and "━" in text.getvalue()
        stages.train([owner], report)
        last = owner.results["training"][-1]
    line = f"train {tmp_path.name}: epoch 3/3 loss {last['loss']:.3f} accuracy {last['accuracy']:.2%}"
    assert line in text.getvalue()


def cells(table: Any) -> list[list[str]]:
    return [[str(column.header), *map(str, column.cells)] for column in table.columns]


def test_the_table_has_the_columns_of_what_was_measured(written: Pipeline) -> None:
    results, before, after = written.results, written.results["cost_before"], written.results["cost_after"]
    other = {"accuracy_sparse": 0.5}
    experiment = {"experiment": EXPERIMENT.to_dict()}
    table = cells(results_table([experiment | {"results": results}, experiment | {"results": other}]))
    names = {"sparse": "sparse", "pruned": "pruned", "recalibrated": "recali-\nbrated"}
    names |= {"finetuned": "fine-\ntuned", "scratch": "from\nscratch"}
    accuracies = [[shown_as, f"{results[f'accuracy_{name}']:.2%}", ""] for name, shown_as in names.items()]
    accuracies[0][2] = "50.00%"
    costs = [
        [name, f"{before[kind] / 1000:#.3g}k → {after[kind] / 1000:#.3g}k ({after[kind] / before[kind]:.1%})", ""]
        for kind, name in (("flops", "FLOPs"), ("parameters", "parameters"))
    ]
    assert table == [["λ", "0.3", "0.3"], ["seed", "0", "0"], *accuracies, *costs]
    assert cells(measured_table([{"round": "1"}], [other])) == [["round", "1"], ["sparse", "50.00%"]]


def test_the_table_of_a_large_network_fits_into_120_columns() -> None:
    """With images held out and λ steered, each run is still a line."""
    stages_ = ("sparse", "pruned", "recalibrated", "finetuned", "held_out_sparse", "held_out_recalibrated")
    results = {f"accuracy_{stage}": 0.93654 for stage in stages_} | {"accuracy_held_out_recalibrated": 0.93104}
    results |= {"cost_before": {"flops": 9_627_463_178, "parameters": 1_472_826}}
    results |= {"cost_after": {"flops": 1_000_000_000, "parameters": 999_999}}
    record = {"experiment": {"training": {"lam": 1e-4, "target_flops": 0.4, "seed": 0}}, "results": results}
    text = StringIO()
    Console(file=text, width=120).print(results_table([record]))
    assert [cell.strip() for cell in text.getvalue().splitlines()[-2].strip("│").split("│")][-3:] == [
        "93.65 → 93.10%",
        "9.63G → 1.00G (10.4%)",
        "1.47M → 1.00M (67.9%)",
    ]


def test_names_of_networks_are_no_markup() -> None:
    training = {"lam": 1e-4, "target_flops": None, "seed": 0}
    names = ["[red]nets.py:small", "nets[/b].py:large"]
    records = [{"experiment": {"model": name, "training": training}, "results": {}} for name in names]
    text = StringIO()
    Console(file=text, width=120).print(results_table(records))
    assert all(name in text.getvalue() for name in names)


def test_the_table_has_the_latency_of_a_run_that_was_pruned_to_one(tmp_path: Path) -> None:
    """It is told when the run is pruned, too, and gone when the run is pruned otherwise."""
    quick = pipeline(tmp_path, replace(EXPERIMENT, pruning=Pruning(latency="1s")))
    stages.train([quick])
    stages.prune(quick)
    took = [quick.results["latency"][name] for name in ("unpruned_ms", "measured_ms")]
    said = f"{took[0]:.3g} → {took[1]:.3g}"
    assert cells(results_table([stages.record(quick)]))[-1] == ["latency, ms", said]
    assert f" parameters, {said} ms; accuracy " in next(pruning_lines(quick))
    (quick.folder / "pruned.safetensors").unlink()
    del quick  # which lets another in
    again = pipeline(tmp_path)
    stages.prune(again)
    assert cells(results_table([stages.record(again)]))[-1][0] == "parameters"


def test_a_lambda_that_steered_itself_is_called_so() -> None:
    training = {"lam": 1e-4, "target_flops": 0.4, "seed": 3}
    results = {"training": [{"lam": 1e-4}, {"lam": 0.000234567}], "accuracy_sparse": 0.9}
    table = cells(results_table([{"experiment": {"training": training}, "results": results}]))
    assert table == [["λ", "steered"], ["seed", "3"], ["sparse", "90.00%"]]


def test_a_network_without_batch_norm_has_no_histograms() -> None:
    assert log_gammas(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))) == {}
    assert torch.equal(log_gammas(nn.BatchNorm1d(3))[""], torch.zeros(3))
