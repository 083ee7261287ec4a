"""Iterative pruning: each round goes on from the last, by either rule and from either start, also when broken off."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import otprune as ot
from otprune.cli import app
from otprune.errors import TrainingError
from otprune.experiments.cells import gain
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.iterate import Restart, Rounds, iterate, iterate_together
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Silent
from otprune.experiments.screen import pruning_lines
from otprune.experiments.thresholds import verify_thresholds
from otprune.report.html.content import content
from otprune.report.html.figures import sketches
from otprune.report.html.subjects import subjects
from otprune.surgery import plans_of
from otprune.training.failures import RunsFailed
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run
from tests.command_line import run_here
from tests.small_runs import (
    CPU,
    DIGITS,
    EXPERIMENT,
    TRAINING,
    BreakOff,
    assert_same_weights,
    loaded,
    net,
    read,
    slimming,
)

RECORD = "record.json"
EXAMPLE = torch.zeros(1, 1, 8, 8)
FILES = {Restart.FINETUNED: "finetuned.safetensors", Restart.SCRATCH: "scratch.safetensors"}


def in_rounds(folder: Path, experiment: Experiment = EXPERIMENT, **options: Any) -> dict[str, Any]:
    return iterate(experiment, folder, DIGITS, CPU, **{"rounds": 2, "save_every": 0.05, **options})


@pytest.fixture(scope="module", params=Restart)
def rounds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Restart]:
    """Two rounds of OT."""
    folder = tmp_path_factory.mktemp("rounds")
    in_rounds(folder, restart=request.param)
    return folder, request.param


def kept(one: Mapping[str, Any]) -> list[int]:
    return [layer["kept"] for layer in one["results"]["layers"]]


def channels(one: Mapping[str, Any]) -> list[int]:
    return [layer["channels"] for layer in one["results"]["layers"]]


def test_a_round_goes_on_from_the_result_of_the_last(rounds: tuple[Path, Restart]) -> None:
    """Trained by hand from there, the model becomes what the second round trained, to the last bit."""
    folder, restart = rounds
    start = {Restart.FINETUNED: "finetuned.safetensors", Restart.SCRATCH: "fresh.safetensors"}[restart]
    by_hand = Run(loaded(folder / "round-1" / start), DIGITS, TRAINING)
    train(by_hand)
    assert_same_weights(by_hand.model, loaded(folder / "round-2" / "sparse.safetensors"))


def test_side_by_side_each_comes_to_what_it_would_alone(rounds: tuple[Path, Restart], tmp_path: Path) -> None:
    alone, restart = rounds
    asked = [Rounds(EXPERIMENT, tmp_path / each, DIGITS, CPU, each) for each in Restart]
    iterate_together(asked, rounds=2)
    together = tmp_path / restart
    assert [kept(one) for one in read(together / RECORD)["rounds"]] == [
        kept(one) for one in read(alone / RECORD)["rounds"]
    ]
    for number in (1, 2):
        weights = (loaded(folder / f"round-{number}" / FILES[restart]) for folder in (together, alone))
        assert_same_weights(*weights)


def test_one_that_fails_is_set_aside_and_the_others_go_to_their_end(tmp_path: Path) -> None:
    diverging = replace(EXPERIMENT, training=replace(TRAINING, rate=1e9))
    names = {"good": EXPERIMENT, "bad": diverging}
    asked = [Rounds(experiment, tmp_path / name, DIGITS, CPU) for name, experiment in names.items()]
    with pytest.raises(RunsFailed, match=r"bad.*not a finite number") as failed:
        iterate_together(asked, rounds=2)
    assert failed.value.others(asked) == asked[:1]
    assert [one.goes_on(2) for one in asked] == [False, True]
    assert len(read(tmp_path / "good" / RECORD)["rounds"]) == 2 and not (tmp_path / "bad" / RECORD).exists()


def test_no_round_waits_for_another_to_be_trained_from_scratch(tmp_path: Path) -> None:
    """Broken off in the first of these trainings, all rounds are pruned already, and it goes on from there."""
    asked = Rounds(EXPERIMENT, tmp_path, DIGITS, CPU, Restart.SCRATCH)
    with pytest.raises(KeyboardInterrupt):
        iterate_together([asked], rounds=2, report=BreakOff("round-1", "scratch", 1))
    there = read(tmp_path / RECORD)["rounds"]
    assert [one["accuracy"] for one in there] == [None, None] and not asked.is_over(2)
    again = Rounds(EXPERIMENT, tmp_path, DIGITS, CPU, Restart.SCRATCH)
    iterate_together([again], rounds=2)
    assert again.is_over(2) and all(one["accuracy"] > 0.9 for one in read(tmp_path / RECORD)["rounds"])
    assert [kept(one) for one in again.record["rounds"]] == [kept(one) for one in there]


class BreakOffIn(Silent):
    """Ends everything after the first epoch from scratch of one of several."""

    def __init__(self, name: str) -> None:
        self.name = name

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        if stage == "scratch" and pipeline.folder.parent.name == self.name:
            raise KeyboardInterrupt


def test_what_was_trained_from_scratch_is_recorded_though_another_is_broken_off(tmp_path: Path) -> None:
    asked = [Rounds(EXPERIMENT, tmp_path / name, DIGITS, CPU, Restart.SCRATCH) for name in ("first", "second")]
    with pytest.raises(KeyboardInterrupt):
        iterate_together(asked, rounds=2, report=BreakOffIn("second"), together=2)
    assert [one.is_over(2) for one in asked] == [True, False]
    assert all(one["accuracy"] > 0.9 for one in read(tmp_path / "first" / RECORD)["rounds"])
    assert [one["accuracy"] for one in read(tmp_path / "second" / RECORD)["rounds"]] == [None, None]


def test_one_that_fails_again_costs_the_others_nothing(tmp_path: Path) -> None:
    """The first round of the good one is there already, so that the bad one is alone in what is left of the stage."""
    diverging = replace(EXPERIMENT, training=replace(TRAINING, rate=1e9))

    def in_rounds_together(rounds: int) -> None:
        names = {"good": EXPERIMENT, "bad": diverging}
        asked = [Rounds(experiment, tmp_path / name, DIGITS, CPU) for name, experiment in names.items()]
        with pytest.raises(RunsFailed, match="bad"):
            iterate_together(asked, rounds)

    for number in (1, 2):
        in_rounds_together(number)
        assert len(read(tmp_path / "good" / RECORD)["rounds"]) == number


def test_what_is_told_of_a_round_is_told_of_the_network_that_it_began_with(rounds: tuple[Path, Restart]) -> None:
    """Of the trained one, whose accuracy is that before: its cost, and that it was pruned in the round before."""
    folder, _ = rounds
    shown = content(subjects([folder / "round-1", folder / "round-2"]))
    first, second = shown["runs"]
    for kind in ("flops", "parameters"):
        assert second["gained"][kind][0] == first["gained"][kind][1] == shown["networks"][second["network"]][kind]
    assert [run["gained"]["before"] for run in (first, second)] == ["unpruned", "as earlier rounds left it"]
    assert [run["accuracies"][0][0] for run in (first, second)] == ["unpruned", "as earlier rounds left it"]
    left = second["gained"]["flops"][1] / first["gained"]["flops"][0]
    assert not first["notes"] and f"after this round it has {left:.1%} of them" in second["notes"][0]
    told = next(pruning_lines(Pipeline(EXPERIMENT, folder / "round-2", DIGITS, CPU)))
    assert told.startswith(f"prune round-2: {gain(*second['gained']['flops'])} FLOPs")


def test_figures_tell_unpruned_networks_from_those_that_rounds_began_with(rounds: tuple[Path, Restart]) -> None:
    shown = content(subjects([rounds[0] / "round-1", rounds[0] / "round-2"]))
    sketch = next(one for one in sketches(shown) if one.stem.startswith("accuracy-against-cost"))
    plotted = {str(one.get_label()): one.get_xydata().tolist() for one in sketch.draw().axes[0].lines}
    for name, run in zip(("unpruned", "as earlier rounds left it"), shown["runs"], strict=True):
        assert plotted[name] == [[run["gained"]["flops"][0] / 1e6, 100 * run["gained"]["accuracy"][0]]]


def test_thresholds_of_a_later_round_are_checked_beside_the_network_that_it_began_with(
    rounds: tuple[Path, Restart], tmp_path: Path
) -> None:
    shutil.copytree(rounds[0] / "round-2", tmp_path / "round-2")
    pipeline = Pipeline(EXPERIMENT, tmp_path / "round-2", DIGITS, CPU)
    (found,) = verify_thresholds(pipeline, (0,), finetune_epochs=0)["shifts"]
    costs = pipeline.results
    assert found["flops"] == costs["cost_after"]["flops"] / costs["cost_sparse"]["flops"]


def test_fresh_weights_have_nothing_of_the_old_but_their_shapes(rounds: tuple[Path, Restart]) -> None:
    folder, restart = rounds
    if restart is Restart.FINETUNED:
        assert not (folder / "round-1" / "fresh.safetensors").exists()
        return
    fresh, old = (loaded(folder / "round-1" / f"{name}.safetensors").state_dict() for name in ("fresh", "pruned"))
    assert {name: tensor.shape for name, tensor in fresh.items()} == {name: t.shape for name, t in old.items()}
    assert fresh["1.weight"].tolist() == [0.5] * len(fresh["1.weight"])
    assert not torch.isclose(fresh["0.weight"], old["0.weight"]).any()


def test_every_round_prunes_what_the_last_left(rounds: tuple[Path, Restart]) -> None:
    folder, restart = rounds
    first, second = read(folder / RECORD)["rounds"]
    assert channels(first) == [16, 24] and channels(second) == kept(first)
    assert sum(kept(second)) < sum(kept(first)) < 40
    assert [first["channels"], second["channels"]] == [sum(kept(first)), sum(kept(second))]
    for number in (1, 2):
        assert len(plans_of(loaded(folder / f"round-{number}" / FILES[restart]))) == number


def test_the_record_has_costs_of_the_first_model_and_the_accuracy_of_the_last_stage(
    rounds: tuple[Path, Restart],
) -> None:
    folder, restart = rounds
    record = read(folder / RECORD)
    assert (record["experiment"], record["restart"], record["remark"]) == (EXPERIMENT.to_dict(), restart, "")
    original = ot.cost(net(), EXAMPLE)
    for one in record["rounds"]:
        small = loaded(folder / f"round-{one['round']}" / FILES[restart])
        left = ot.cost(small, EXAMPLE)
        assert one["flops"] == left.flops / original.flops
        assert one["parameters"] == left.parameters / original.parameters
        assert one["accuracy"] == one["results"][f"accuracy_{restart}"] > 0.9
        assert one["provenance"]["torch"] == torch.__version__
        assert one["results"] == read(folder / f"round-{one['round']}" / "record.json")["results"]


def test_training_from_scratch_has_the_budget_of_the_first_training(rounds: tuple[Path, Restart]) -> None:
    folder, restart = rounds
    for one in read(folder / RECORD)["rounds"]:
        if restart is Restart.SCRATCH:
            assert len(one["results"]["scratch"]) == round(TRAINING.epochs * min(1 / one["flops"], 2))
        else:
            assert len(one["results"]["finetuning"]) == EXPERIMENT.finetuning.epochs


def untimed(record: dict[str, Any]) -> dict[str, Any]:
    for one in record["rounds"]:
        one["results"].pop("seconds")
    return record


def test_rounds_broken_off_anywhere_end_the_same(rounds: tuple[Path, Restart], tmp_path: Path) -> None:
    folder, restart = rounds
    last = "scratch" if restart is Restart.SCRATCH else "finetune"
    moments = [("round-1", "train", 2), ("round-1", last, 1), ("round-2", "train", 2), ("round-2", last, 2)]
    if restart is Restart.SCRATCH:
        moments.sort(key=lambda moment: moment[1] == last)  # which comes after all rounds
    for moment in moments:
        with pytest.raises(KeyboardInterrupt):
            in_rounds(tmp_path, restart=restart, report=BreakOff(*moment))
    there = [one["round"] for one in read(tmp_path / RECORD)["rounds"]]
    assert there == ([1, 2] if restart is Restart.SCRATCH else [1])
    record = in_rounds(tmp_path, restart=restart)
    assert untimed(record) == untimed(read(folder / RECORD))
    for number in (1, 2):
        place = f"round-{number}/{FILES[restart]}"
        assert_same_weights(loaded(tmp_path / place), loaded(folder / place))


def test_going_through_again_changes_nothing(rounds: tuple[Path, Restart]) -> None:
    folder, restart = rounds
    anew = (RECORD, "rounds.json")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name not in anew}
    written = (folder / RECORD).read_bytes()
    assert len(in_rounds(folder, restart=restart, rounds=1)["rounds"]) == 2  # those that are there are not hidden
    in_rounds(folder, restart=restart)
    assert (folder / RECORD).read_bytes() == written
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name not in anew}


def test_rounds_that_are_gone_on_with_are_as_many_as_were_asked_for(tmp_path: Path) -> None:
    """Broken off in the first, before anything is recorded; another number wins, and is what counts from then on."""
    with pytest.raises(KeyboardInterrupt):
        in_rounds(tmp_path, slimming(0.3), rounds=2, report=BreakOff("round-1", "train", 1))
    assert not (tmp_path / RECORD).exists()
    for asked, expected in ((None, 2), (3, 3), (None, 3)):
        assert len(in_rounds(tmp_path, slimming(0.3), rounds=asked)["rounds"]) == expected


def test_the_verb_goes_on_to_as_many_rounds_as_were_asked_for(tmp_path: Path) -> None:
    numbers = {"epochs": 1, "finetune_epochs": 0, "rule": "ns", "ratio": 0.2}
    begun = run_here("iterate", model=EXPERIMENT.model, data="digits", device="cpu", out=tmp_path, rounds=2, **numbers)
    assert begun.code == 0, begun.err
    shutil.rmtree(tmp_path / "round-2")  # as if it had been broken off there
    again = run_here("iterate", device="cpu", out=tmp_path)
    assert again.code == 0 and {path.name for path in tmp_path.glob("round-*")} == {"round-1", "round-2"}


@pytest.mark.parametrize("text", ["{", '{"rounds": "two"}', "{}", '{"rounds": 0}', '{"rounds": -1}'])
def test_a_damaged_number_of_rounds_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "rounds.json").write_text(text)
    with pytest.raises(TrainingError, match=r"rounds\.json: (is not what a run writes|it asks for (0|-1) rounds)"):
        in_rounds(tmp_path, rounds=None)


def test_a_run_does_not_overwrite_the_record_of_rounds(tmp_path: Path) -> None:
    in_rounds(tmp_path, rounds=1)
    before = (tmp_path / RECORD).read_bytes()
    with pytest.raises(TrainingError, match=r"record\.json: is the record of rounds"):
        Pipeline(EXPERIMENT, tmp_path, DIGITS, CPU)
    assert (tmp_path / RECORD).read_bytes() == before and not (tmp_path / "config.json").exists()


def test_network_slimming_never_takes_more_than_half_of_a_layer(tmp_path: Path) -> None:
    record = in_rounds(tmp_path, slimming(ratio=0.5))
    trained = Pipeline(slimming(ratio=0.5), tmp_path / "round-1", DIGITS, CPU).load("sparse.safetensors")
    unlimited = ot.plan(trained, EXAMPLE, ot.GlobalRatio(0.5))
    assert any(len(layer.kept) < layer.channels / 2 for layer in unlimited.layers)  # so that the limit matters
    for one in record["rounds"]:
        assert all(after >= before / 2 for before, after in zip(channels(one), kept(one), strict=True))
        assert sum(kept(one)) < sum(channels(one))
    assert channels(record["rounds"][1]) == kept(record["rounds"][0])
    assert record["rounds"][0]["results"]["rule"] == {"rule": "GlobalRatio", "ratio": 0.5}


def test_it_is_over_when_a_round_removes_nothing(tmp_path: Path) -> None:
    free = replace(EXPERIMENT, training=replace(TRAINING, lam=0.0, epochs=1))
    record = in_rounds(tmp_path, free, rounds=3)
    assert record["remark"] == "round 1 removes nothing: no further round was begun"
    assert len(record["rounds"]) == 1 and record["rounds"][0]["flops"] == 1
    assert record["rounds"][0]["results"]["remarks"] == [
        "no channel was negligible: train longer or with a larger --lam, or prune with --rule ns"
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"record.json", "round-1", "rounds.json"}
    assert not (tmp_path / "round-1" / "finetuned.safetensors").exists()


def test_another_way_to_restart_is_refused_in_the_same_folder(rounds: tuple[Path, Restart]) -> None:
    folder, restart = rounds
    other = next(way for way in Restart if way is not restart)
    with pytest.raises(TrainingError, match=f"belongs to rounds with restart={restart}, not {other}"):
        in_rounds(folder, restart=other, rounds=7)
    assert read(folder / "rounds.json") == {"rounds": 2}


def test_the_folder_of_a_run_is_no_folder_for_rounds(rounds: tuple[Path, Restart]) -> None:
    with pytest.raises(TrainingError, match="round-1: holds a run of its own"):
        in_rounds(rounds[0] / "round-1")


def test_no_round_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="at least 1 round, not 0"):
        in_rounds(tmp_path / "rounds", rounds=0)
    assert not (tmp_path / "rounds").exists()


@pytest.mark.parametrize(
    "aimed",
    [
        replace(EXPERIMENT, hold_out=0.1, pruning=Pruning(flops=0.4)),
        replace(EXPERIMENT, training=replace(TRAINING, target_flops=0.4)),
    ],
    ids=["flops", "target_flops"],
)
def test_a_target_is_refused(aimed: Experiment, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"cannot meet (target_)?flops=0\.4: leave it out"):
        in_rounds(tmp_path / "rounds", aimed)
    assert not (tmp_path / "rounds").exists()


def test_the_verb_iterates_and_shows_the_rounds(tmp_path: Path) -> None:
    """Network Slimming keeps half of each layer without being told."""
    flags = ["--model", EXPERIMENT.model, "--data", "digits", "--out", str(tmp_path), "--device", "cpu", "--rule", "ns"]
    numbers = ["--epochs", "1", "--finetune-epochs", "1", "--ratio", "0.8", "--rounds", "2"]
    done = CliRunner().invoke(app, ["iterate", *flags, *numbers])
    assert done.exit_code == 0, done.output
    record = read(tmp_path / "record.json")
    assert [kept(one) for one in record["rounds"]] == [[8, 12], [4, 6]]
    began = {1: "before", 2: "sparse"}
    for one in record["rounds"]:
        row = next(line for line in done.output.splitlines() if line.startswith(f"│ {one['round']} "))
        before, after = (one["results"][f"cost_{when}"]["flops"] for when in (began[one["round"]], "after"))
        assert f"{one['accuracy']:.2%}" in row and f" {one['flops']:.1%} " in row and f"({after / before:.1%})" in row
    assert "beside the network that it began with" in done.output
    again = CliRunner().invoke(app, ["iterate", "--out", str(tmp_path), "--rounds", "2", "--device", "cpu"])
    assert again.exit_code == 0 and again.output == done.output[done.output.index("┏") :]


def test_the_verb_says_which_layers_no_round_penalized_or_pruned(tmp_path: Path) -> None:
    """Before a round is fine-tuned, and at the end, where it is said once for all rounds."""
    strong = {"lam": 0.3, "proximal": None, "penalized": "untied", "epochs": 2, "finetune_epochs": 1, "rounds": 2}
    done = run_here("iterate", model="digits_net", data="digits", device="cpu", out=tmp_path, **strong)
    remark, *_ = read(tmp_path / RECORD)["rounds"][1]["results"]["remarks"]
    assert "neither penalized nor pruned: bn, blocks.0.bn2" in remark
    lines = done.out.splitlines()
    assert lines.index(f"prune round-1: {remark}") < lines.index(f"prune round-2: {remark}")
    assert lines[-1] == f"round 1, 2: {remark}"


def test_a_limit_that_a_file_says_counts_also_where_it_is_the_default(tmp_path: Path) -> None:
    """And it still does when the rounds are gone on with without the file."""
    file = tmp_path / "my.toml"
    file.write_text('[pruning]\nrule = "ns"\nratio = 0.8\nmax_layer_ratio = 1.0')
    flags = ["--model", EXPERIMENT.model, "--data", "digits", "--epochs", "1", "--finetune-epochs", "1"]
    common = ["--rounds", "1", "--out", str(tmp_path / "rounds"), "--device", "cpu"]
    for asked in ([*flags, "--config", str(file)], []):
        done = CliRunner().invoke(app, ["iterate", *asked, *common])
        assert done.exit_code == 0, done.output
    (one,) = read(tmp_path / "rounds" / "record.json")["rounds"]
    assert sum(kept(one)) <= 0.2 * 40 + 1
