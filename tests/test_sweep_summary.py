"""What a sweep leaves behind: every run in numbers and in words, and what its seeds come to."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from otprune.report.summary import over_seeds, summarize, summary
from otprune.training.holding import holding
from tests.command_line import DIGITS, Done, otprune, run_here
from tests.processes import start

NET = "tests.small_runs:net"
ASKED: dict[str, object] = {"model": NET, "epochs": 1, "finetune_epochs": 1, "ratio": 0.3, "rule": "ns"}
COMMAND = DIGITS | ASKED


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def record(lam: float, seed: int, **results: Any) -> dict[str, Any]:
    training = {"lam": lam, "target_flops": None, "seed": seed}
    return {"experiment": {"model": "a", "training": training}, "results": results}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    done = otprune("sweep", **ASKED, lam="1e-3,1e-2", seeds=2, out=folder)
    assert done.code == 0, done.err
    return folder, done


def test_every_run_has_a_row(swept: tuple[Path, Done]) -> None:
    folder, _ = swept
    runs = read(folder / "summary.json")["runs"]
    assert [(run["run"], run["lam"], run["seed"]) for run in runs] == [
        (f"lam{lam}-seed{seed}", float(lam), seed) for lam in ("1e-3", "1e-2") for seed in (0, 1)
    ]
    for run in runs:
        results = read(folder / run["run"] / "record.json")["results"]
        for stage in ("sparse", "pruned", "recalibrated", "finetuned"):
            assert run["accuracy"][stage] == results[f"accuracy_{stage}"]
        for kind in ("flops", "parameters"):
            assert run[kind] == {when: results[f"cost_{when}"][kind] for when in ("before", "after")}
            assert run[kind]["after"] < run[kind]["before"]


def test_every_lambda_has_mean_and_spread_over_its_seeds(swept: tuple[Path, Done]) -> None:
    found = read(swept[0] / "summary.json")
    assert [(group["lam"], group["seeds"]) for group in found["over_seeds"]] == [(1e-3, [0, 1]), (1e-2, [0, 1])]
    for group, runs in zip(found["over_seeds"], (found["runs"][:2], found["runs"][2:]), strict=True):
        accuracies = [run["accuracy"]["finetuned"] for run in runs]
        spread = {"mean": statistics.fmean(accuracies), "std": statistics.pstdev(accuracies)}
        assert group["accuracy"]["finetuned"] == pytest.approx(spread)
        assert group["flops"]["after"]["mean"] == statistics.fmean(run["flops"]["after"] for run in runs)


def test_it_can_be_read_and_is_shown(swept: tuple[Path, Done]) -> None:
    folder, done = swept
    found, text = read(folder / "summary.json"), (folder / "summary.md").read_text(encoding="utf-8")
    first, group = found["runs"][0], found["over_seeds"][0]["accuracy"]["finetuned"]
    assert f"| lam1e-3-seed0 | 0.001 | 0 | {first['accuracy']['sparse']:.2%} |" in text
    assert f"{100 * group['mean']:.2f} ± {100 * group['std']:.2f}%" in text
    assert f"{100 * group['mean']:.2f} ± {100 * group['std']:.2f}%" in done.out
    assert done.out.splitlines()[-1] == f"the summary is {folder}/summary.md, and for programs {folder}/summary.json"


def test_a_finished_sweep_writes_it_again(swept: tuple[Path, Done]) -> None:
    folder, first = swept
    names = ("summary.json", "summary.md")
    before = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    for name in names:
        (folder / name).unlink()
    again = otprune("sweep", **ASKED, lam="1e-3", seeds=2, out=folder)
    assert again.code == 0 and {name: (folder / name).read_text(encoding="utf-8") for name in names} == before
    assert first.out.endswith(again.out[again.out.rindex("┏") :])  # the means of all that is there


def test_of_runs_that_failed_and_others_there_are_the_others(tmp_path: Path) -> None:
    done = otprune("sweep", **ASKED, lam="1e30,1e-3", out=tmp_path)
    assert done.code == 1
    assert [run["run"] for run in read(tmp_path / "summary.json")["runs"]] == ["lam1e-3-seed0"]


def test_a_sweep_waits_for_another_that_summarizes_in_the_same_folder(tmp_path: Path) -> None:
    folder, ready = tmp_path / "runs", tmp_path / "ready"
    other = start(hold_for_a_while, folder, ready)
    while other.is_alive() and not ready.exists():
        time.sleep(0.01)
    done = otprune("sweep", **ASKED, lam="1e-3", out=folder)
    other.kill()
    other.join()
    assert done.code == 0, done.err


def hold_for_a_while(folder: Path, ready: Path) -> None:
    """Until the run of the other sweep is finished, and a little longer."""
    with holding([folder]):
        ready.touch()
        while not list(folder.glob("*/record.json")):
            time.sleep(0.01)
        time.sleep(1)


@pytest.mark.parametrize("name", ["results.json", "config.json"])
def test_a_run_with_a_damaged_file_is_set_aside_and_the_others_run(name: str, tmp_path: Path) -> None:
    first = run_here("sweep", **COMMAND, lam="1e-3", out=tmp_path)
    assert first.code == 0, first.err
    damaged = tmp_path / "lam1e-3-seed0" / name
    damaged.write_bytes(damaged.read_bytes()[:20])
    done = run_here("sweep", **COMMAND, lam="1e-3,1e-2", out=tmp_path)
    assert done.code == 1 and done.err.startswith(f"{damaged}: is not what a run writes") and done.err.count("\n") == 1
    assert [run["run"] for run in read(tmp_path / "summary.json")["runs"]] == ["lam1e-3-seed0", "lam1e-2-seed0"]
    assert len(damaged.read_bytes()) == 20  # left to be mended, as the message says how to


def test_damage_is_told_with_what_else_goes_wrong(tmp_path: Path) -> None:
    damaged = tmp_path / "lam1e-3-seed0" / "results.json"
    damaged.parent.mkdir()
    damaged.write_text("{")
    alone = run_here("sweep", **COMMAND, lam="1e-3", out=tmp_path)
    assert alone.code == 1 and alone.err.startswith(f"{damaged}: ") and not (tmp_path / "summary.json").exists()
    beside = run_here("sweep", **COMMAND, lam="1e-3,1e30", out=tmp_path)
    assert beside.code == 1 and beside.err.startswith(f"{damaged}: ")
    assert beside.err.splitlines()[1].startswith(f"{tmp_path / 'lam1e30-seed0' / 'train'}: ")


def test_what_is_no_run_of_the_sweep_and_cannot_be_read_is_left_out_with_a_warning(tmp_path: Path) -> None:
    for name, content in {"old": '{"experiment": {', "older": "[]"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(content)
    done = run_here("sweep", **COMMAND, lam="1e-3", out=tmp_path)
    assert done.code == 0, done.err
    left_out = [line.partition(" is left out of the summary")[0] for line in done.err.splitlines()]
    assert left_out == [str(tmp_path / name) for name in ("old", "older")]
    assert [run["run"] for run in read(tmp_path / "summary.json")["runs"]] == ["lam1e-3-seed0"]
    assert "lam1e-3-seed0" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_a_sweep_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    done = otprune("sweep", model="vgg15", lam="1e-3", out=tmp_path / "runs")
    assert done.code == 1 and "no model named 'vgg15'" in done.err and not (tmp_path / "runs").exists()


def test_one_seed_has_no_spread_and_other_settings_are_another_group() -> None:
    other = record(1e-3, 1, accuracy_sparse=0.5)
    other["experiment"]["model"] = "b"
    found = summary({"one": record(1e-3, 0, accuracy_sparse=0.9), "two": other})
    assert [group["accuracy"] for group in found["over_seeds"]] == [
        {"sparse": {"mean": 0.9}},
        {"sparse": {"mean": 0.5}},
    ]
    assert over_seeds(found) is None


@pytest.mark.parametrize("missing", [{}, {"accuracy_sparse": None}])
def test_what_only_some_have_is_empty_for_others_and_has_no_mean(missing: dict[str, None]) -> None:
    found = summary({"one": record(1e-3, 0, accuracy_sparse=0.9), "two": record(1e-3, 1, **missing)})
    assert found["over_seeds"][0]["accuracy"] == {} and [run["accuracy"] for run in found["runs"]] == [
        {"sparse": 0.9},
        {},
    ]


def test_a_run_is_never_left_out_of_it_unsaid(tmp_path: Path) -> None:
    """A folder without a record is no finished run; a record that cannot be read is named."""
    (tmp_path / "broken").mkdir()
    assert summarize(tmp_path)["runs"] == []
    (tmp_path / "broken" / "record.json").write_text("{")
    with pytest.raises(Exception, match=r"broken/record\.json: is not what a run writes"):
        summarize(tmp_path)
