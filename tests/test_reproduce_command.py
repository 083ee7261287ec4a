"""`otprune reproduce` lists, runs and draws what is asked for, and refuses the rest in one line."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otprune.cli import app
from otprune.cli.reproduce import _announced
from otprune.experiments.reproduce.needed import pruned
from otprune.experiments.reproduce.rows import row, rows, seeds, sweep
from otprune.experiments.reproduce.workshop import Workshop
from tests import made_records
from tests.small_runs import CPU


@pytest.fixture(scope="module")
def all_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_records.everything(tmp_path_factory.mktemp("results"))


def reproduce(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_a_folder_of_records_that_is_not_there_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    done = reproduce("--results", tmp_path / "nowhere")
    assert done.exit_code == 1
    assert (
        done.stderr == f"there is no folder {tmp_path / 'nowhere'} to list: name that of the records with --results\n"
    )


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


def test_only_what_is_like_a_pattern_is_run(all_made: Path, tmp_path: Path) -> None:
    """Here everything is recorded but two seeds, which would need data; the others need nothing."""
    results = Path(shutil.copytree(all_made, tmp_path / "results"))
    for seed in (6, 7):
        (results / f"{seeds('cifar10', 'ot')[seed].place}.json").unlink()
    flags = ("--results", results, "--figures", tmp_path, "--device", "cpu")
    recorded = reproduce("statistics", *flags, "--only", "cifar10/vgg14/*-seed[0-5]", "--only", "cifar100")
    assert recorded.exit_code == 0 and "2 not run" in recorded.output
    assert "nothing to run: 34 of 34 records" in recorded.output  # neither seed 10 nor cifar10 is among them
    for name in ("cifar10/vgg14/lam2e-4-seed1", "results/cifar10/vgg14/lam2e-4-seed1.json", "./cifar10/*-4-seed1"):
        exactly = reproduce("statistics", *flags, "--only", name)
        assert exactly.exit_code == 0 and re.search(r"nothing to run: ([12]) of \1 records", exactly.output)


@pytest.mark.parametrize("pattern", ["cifar99/vgg14", "cifar1", "", "*/resnet20/*", "cifar10/vgg14/rounds"])
def test_a_pattern_that_nothing_is_like_is_refused(pattern: str, tmp_path: Path) -> None:
    done = reproduce("iterative", "--only", "cifar10/vgg14", "--only", pattern, "--results", tmp_path)
    assert done.exit_code == 1 and f"no record of iterative is in or like '{pattern}'" in done.stderr
    assert "cifar10/vgg14, with names such as cifar10/vgg14/rounds-ns-scratch-lam1e-4-seed0" in done.stderr


def test_what_is_about_to_be_run_is_told(tmp_path: Path) -> None:
    needs, workshop = list(row("iterative").needs), Workshop(tmp_path / "runs", tmp_path / "results", CPU)
    assert _announced(needs, workshop, scratch=True).startswith("to run on cpu: 4 of 4 records that ")
    made_records.write(tmp_path / "results", needs[:3])
    told = _announced(needs, workshop, scratch=True)
    assert "1 of 4 records" in told and f"lacks: {needs[3].place}; first the shared training" in told
    assert told.endswith(" of cifar10/vgg14/lam1e-4-seed0")
    (trained := tmp_path / "runs/cifar10/vgg14/lam1e-4-seed0/sparse.safetensors").parent.mkdir(parents=True)
    trained.touch()
    assert _announced(needs, workshop, scratch=True).endswith(f"lacks: {needs[3].place}")
    unscratched = [replace(needed, scratch=True) for needed in sweep("cifar10", "vgg14")]
    made_records.write(tmp_path / "results", sweep("cifar10", "vgg14"))
    assert "7 of 7" in _announced(unscratched, workshop, scratch=True)
    assert _announced(unscratched, workshop, scratch=False).startswith("nothing to run: 7 of 7")


def test_what_needs_no_runs_says_why(all_made: Path, tmp_path: Path) -> None:
    done = reproduce("edge-latency", "--results", all_made, "--figures", tmp_path, "--device", "cpu")
    assert done.exit_code == 0 and "0 of 0" not in done.output and "benchmarks/latency.py" in done.output


def test_a_folder_that_is_not_there_is_not_drawn_from(tmp_path: Path) -> None:
    done = reproduce("resnet20", "--draw-only", "--results", tmp_path / "nowhere", "--figures", tmp_path)
    assert done.exit_code == 1 and "nowhere to draw from" in done.stderr


@pytest.mark.parametrize("lost", ["cost_after", "cost_before", "accuracy_finetuned"])
def test_a_record_that_lost_something_is_refused_by_name(lost: str, tmp_path: Path) -> None:
    (needed,) = seeds("cifar10", "ot")[:1]
    record = made_records.record(needed)
    if lost == "accuracy_finetuned":
        record["results"][lost] = None
    else:
        del record["results"][lost]
    made_records.write(tmp_path, [needed], lambda _: record)
    done = reproduce("statistics", "--draw-only", "--results", tmp_path, "--figures", tmp_path)
    assert done.exit_code == 1 and f"lam2e-4-seed0.json: has lost its {lost}." in done.stderr.replace("\n", "")


@pytest.mark.parametrize("content", ["", "{}"])
def test_a_damaged_record_stops_what_needs_it_by_name_and_nothing_else(
    content: str, all_made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workshop, "data", lambda *_: pytest.fail("it would be trained"))
    results = Path(shutil.copytree(all_made, tmp_path / "results"))
    damaged = results / f"{row('iterative').needs[1].place}.json"
    damaged.write_text(content)
    folders = ("--results", results, "--figures", tmp_path / "figures", "--out", tmp_path / "runs", "--device", "cpu")
    for flags in ((), ("--draw-only",), ("--only", row("iterative").needs[0].place)):
        done = reproduce("iterative", *folders, *flags)
        assert done.exit_code == 1 and done.stderr.startswith(f"{damaged}: is no record of a run: ")
    assert "1 refused" in done.output and "nothing to run: 1 of 1" in done.output
    listed = reproduce("--results", results)
    assert listed.exit_code == 1 and all(name in listed.stdout for name in rows()) and "3 of 4" in listed.stdout
    assert listed.stderr.startswith(f"{damaged}: ") and listed.stderr.count("\n") == 1
    assert reproduce("layer-distributions", *folders).exit_code == 0
    assert damaged.read_text() == content and not (tmp_path / "runs").exists()


def test_damage_in_another_seed_that_a_figure_reads_is_listed_and_what_needs_it_not_is_drawn(
    all_made: Path, tmp_path: Path
) -> None:
    results, figures = Path(shutil.copytree(all_made, tmp_path / "results")), tmp_path / "figures"
    damaged = results / f"{pruned('cifar10', 'vgg14', 1e-3, seed=1).place}.json"
    damaged.write_text("{")
    listed = reproduce("--results", results)
    assert listed.exit_code == 1 and listed.stderr.startswith(f"{damaged}: ") and listed.stderr.count("\n") == 1
    told = {name: next(line for line in listed.stdout.splitlines() if f" {name} " in line) for name in rows()}
    refused = {name for name, line in told.items() if "1 refused" in line}
    assert refused == {"accuracy-vs-cost", "without-training", "one-training", "iterative"}
    drawn = reproduce("without-training", "--draw-only", "--results", results, "--figures", figures)
    assert drawn.exit_code == 1 and drawn.stderr == listed.stderr
    assert "made without what is refused: cifar10/vgg14/lam1e-3-seed1" in drawn.stdout
    assert all((figures / f"without-training-{data}-vgg14.png").exists() for data in ("cifar10", "cifar100"))


def test_one_damaged_record_does_not_stop_the_others_of_its_row(all_made: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(all_made, tmp_path / "results"))
    damaged = results / f"{row('iterative').needs[1].place}.json"
    damaged.write_text("{")
    done = reproduce("iterative", "--draw-only", "--results", results, "--figures", tmp_path)
    assert done.exit_code == 1 and done.stderr.startswith(f"{damaged}: ") and (tmp_path / "iterative.png").exists()
    assert "| NS, from scratch | 5 |" in done.stdout and "| OT, from scratch |" not in done.stdout


def test_what_is_no_record_of_a_run_is_named_too(all_made: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(all_made, tmp_path / "results"))
    (results / "latency-vgg14.json").write_text("{")
    for asked in ((), ("edge-latency", "--draw-only", "--figures", tmp_path)):
        done = reproduce(*asked, "--results", results)
        assert done.exit_code == 1 and done.stderr.count("\n") == 1 and "edge-latency" in done.stdout
        assert done.stderr.startswith(f"{results / 'latency-vgg14.json'}: is no record of latencies")


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
