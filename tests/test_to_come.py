"""What the runs that are missing take follows from the records that there are."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from otprune.errors import TrainingError
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import ista, row, rows, seeds, slimming, sweep
from otprune.experiments.reproduce.trainings import warm_up
from otprune.report.to_come import to_come
from tests import made_records

EPOCHS, FINETUNING = 160, 40  # of the paper's recipe


@pytest.fixture(scope="module")
def all_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = made_records.everything(tmp_path_factory.mktemp("results"))
    others = [needed for one in rows().values() for needed in one.needs if not Records(folder).find(needed)]
    made_records.write(folder, sorted(others, key=lambda needed: needed.scratch))
    return folder


def without(folder: Path, place: Path, *lost: Needed) -> Path:
    """The same records but for these."""
    results = Path(shutil.copytree(folder, place / "results"))
    for needed in lost:
        (results / f"{needed.place}.json").unlink()
    return results


def lines(results: Path) -> list[list[str]]:
    """The cells of each network, and of all."""
    table = to_come(Records(results)).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_nothing_is_to_come_where_everything_is_recorded(all_made: Path) -> None:
    assert to_come(Records(all_made)) == ""


def test_prunings_of_one_training_take_it_once(all_made: Path, tmp_path: Path) -> None:
    lost = [seeds("cifar100", rule)[seed] for rule in ("ot", "ns") for seed in (9, 10)]
    results = without(all_made, tmp_path, *lost)
    assert lines(results) == [["VGG-14 on CIFAR-100", "2", "4", "0", f"{2 * EPOCHS + 4 * FINETUNING}", "–"]]


def test_a_recorded_training_whose_weights_are_gone_is_made_again(all_made: Path, tmp_path: Path) -> None:
    lost = slimming("cifar10", "resnet50")[1]
    results = without(all_made, tmp_path, lost)
    most = EPOCHS + FINETUNING + 2 * EPOCHS
    assert lines(results) == [["ResNet-50 on CIFAR-10", "1", "1", "1", f"{most}", "–"]]


def test_a_record_tells_for_how_long_its_network_is_trained_from_scratch(all_made: Path, tmp_path: Path) -> None:
    results = without(all_made, tmp_path)
    lacking = sweep("cifar10", "vgg14", scratch=True)[1]
    made_records.write(results, [replace(lacking, scratch=False)])
    path = results / f"{lacking.place}.json"
    record = json.loads(path.read_text())
    record["results"]["cost_after"]["flops"] = record["results"]["cost_before"]["flops"] / 1.25
    path.write_text(json.dumps(record))
    assert lines(results) == [["VGG-14 on CIFAR-10", "0", "0", "1", f"{1.25 * EPOCHS:.0f}", "–"]]


def test_rounds_take_a_training_each_and_end_as_they_restart(all_made: Path, tmp_path: Path) -> None:
    from_scratch = next(needed for needed in row("iterative").needs if needed.restart == "scratch")
    finetuned = next(needed for needed in row("iterative").needs if needed.restart == "finetuned")
    assert lines(without(all_made, tmp_path / "a", from_scratch))[0][1:4] == ["5", "0", "5"]
    assert lines(without(all_made, tmp_path / "b", finetuned))[0][1:4] == ["5", "5", "0"]


def test_trainings_by_ista_take_their_warm_up_once(all_made: Path, tmp_path: Path) -> None:
    lost = ista()
    asked = [needed.experiment for needed in lost]
    epochs = [one.training.epochs + one.finetuning.epochs for one in asked]
    warm = warm_up(asked[0]).training.epochs
    trainings, _, _, total, _ = lines(without(all_made, tmp_path, *lost))[0][1:]
    assert (trainings, total) == (str(len(lost) + 1), f"{sum(epochs) + warm:,}")


def test_hours_are_those_of_the_measured_step_and_all_are_added(all_made: Path, tmp_path: Path) -> None:
    lost = [seeds("cifar10", "ot")[10], slimming("cifar100", "densenet121", scratch=False)[0]]
    results = without(all_made, tmp_path, *lost)
    for model, milliseconds in (("vgg14", 10.0), ("densenet121", 30.0)):
        step_time(results / "train_step" / f"{model}.json", model, milliseconds)
    dense, vgg, together = lines(results)
    assert vgg[-1] == f"{782 * 0.01 * 200 / 3600:.1f}" and dense[-1] == f"{782 * 0.03 * 520 / 3600:.1f}"
    assert together == ["all", "2", "2", "1", "720", f"{(782 * 0.01 * 200 + 782 * 0.03 * 520) / 3600:.1f}"]
    (results / "train_step" / "vgg14.json").unlink()
    assert [line[-1] for line in lines(results)] == [dense[-1], "–", "–"]


def test_step_times_that_are_none_are_refused_by_name(all_made: Path, tmp_path: Path) -> None:
    results = without(all_made, tmp_path, seeds("cifar10", "ot")[10])
    path = results / "train_step" / "vgg14.json"
    step_time(path, "vgg14", "fast")
    with pytest.raises(TrainingError, match=r"vgg14\.json: is no record of the time of training steps: .*Measure it"):
        to_come(Records(results))


def step_time(path: Path, model: str, milliseconds: object) -> None:
    path.parent.mkdir(exist_ok=True)
    record = {"configuration": {"batch": 64}, "results": {model: {"ours_ms": milliseconds}}}
    path.write_text(json.dumps(record))
