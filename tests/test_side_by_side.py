"""What is missing is made in several processes as in one: each training once, then at once what is made of it."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from otprune.experiments.claiming import claim
from otprune.experiments.following import OnScreen
from otprune.experiments.reproduce.jobs import Job, jobs
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.rows import Row
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.side_by_side import fetch, run_missing_in
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.runs_table import RunsTable
from otprune.training.failures import RunsFailed
from otprune.training.stopping import Interrupted
from tests import made_records, processes
from tests.command_line import run_here
from tests.crew_tasks import wait_for
from tests.small_needs import BASELINE, BY_ISTA, EVERYTHING, PRUNED, ROUNDS, SHIFTED, SLIMMED
from tests.small_runs import CPU, read

TRAINED = PRUNED.place
LONGER = replace(PRUNED.experiment, training=replace(PRUNED.experiment.training, epochs=60))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums come out the same to the last bit only if they are split the same way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def workshop(folder: Path) -> Workshop:
    return Workshop(folder / "runs", folder / "results", CPU, together=2, say=lambda _: None)


def made_in_two(needs: Sequence[Needed], folder: Path) -> list[str]:
    """Run what is missing, as the command does; return what it prints into a file."""
    shop, text = workshop(folder), StringIO()
    found = jobs(needs, shop)
    screen = OnScreen(RunsTable([job.name for job in found]), Console(file=text, width=200))
    try:
        run_missing_in(2, found, shop, scratch=True, listener=screen)
    finally:
        (folder / "said").write_text(text.getvalue())
    return text.getvalue().splitlines()


def make_in_two(needs: Sequence[Needed], folder: Path) -> None:
    """For a process of its own, which is stopped."""
    try:
        made_in_two(needs, folder)
    except Interrupted as stopped:
        (folder / "told").write_text(str(stopped))


def lasting(content: Any) -> Any:
    """What is the same wherever and however fast it is made."""
    if isinstance(content, dict):
        return {key: lasting(one) for key, one in content.items() if not key.startswith(("provenance", "seconds"))}
    return [lasting(one) for one in content] if isinstance(content, list) else content


def recorded(folder: Path) -> dict[str, Any]:
    results = folder / "results"
    return {path.relative_to(results).as_posix(): lasting(read(path)) for path in sorted(results.rglob("*.json"))}


def in_short(found: Sequence[Job]) -> list[tuple[str, list[str], list[str], str]]:
    return [
        (job.name, [one.place for one in job.needs], [one.place for one in job.sharing], job.after) for job in found
    ]


def given_weights(needed: Needed, folder: Path) -> None:
    path = folder / "runs" / needed.begins_at / "sparse.safetensors"
    path.parent.mkdir(parents=True)
    path.touch()


def test_two_processes_record_what_one_does(tmp_path: Path, one_thread: None) -> None:
    needs = [PRUNED, SLIMMED[0], SHIFTED, ROUNDS]
    said = made_in_two(needs, tmp_path / "two")
    run_missing(needs, workshop(tmp_path / "one"))
    assert recorded(tmp_path / "two") == recorded(tmp_path / "one") and len(recorded(tmp_path / "two")) == len(needs)
    assert {f"{needed.place}: finished" for needed in (PRUNED, SLIMMED[0], ROUNDS)} == {
        line for line in said if line.endswith(": finished")
    }
    assert sum(line.startswith("recorded ") for line in said) == len(needs) + 2  # two once more, from scratch
    assert any(line.startswith(f"train {TRAINED}: ") for line in said)
    assert not any(line.startswith(f"train {SLIMMED[0].place}: ") for line in said)
    assert in_short(jobs(needs, workshop(tmp_path / "two"))) == []


def test_what_is_made_of_one_training_waits_for_it_and_comes_right_after(tmp_path: Path) -> None:
    slimmed = [needed.place for needed in SLIMMED]
    assert in_short(jobs(EVERYTHING, workshop(tmp_path))) == [
        (BASELINE.place, [BASELINE.place], [], ""),
        (TRAINED, [TRAINED, SHIFTED.place], [*slimmed, ROUNDS.place], ""),
        *((name, [name], [], TRAINED) for name in (*slimmed, ROUNDS.place)),
    ]


def test_a_training_that_no_record_asks_for_is_made_for_those_that_share_it(tmp_path: Path) -> None:
    slimmed = [needed.place for needed in SLIMMED]
    assert in_short(jobs(SLIMMED, workshop(tmp_path))) == [
        (TRAINED, [], slimmed, ""),
        *((name, [name], [], TRAINED) for name in slimmed),
    ]


def test_what_has_been_given_its_weights_waits_for_nothing(tmp_path: Path) -> None:
    given_weights(SLIMMED[0], tmp_path)
    given_weights(ROUNDS, tmp_path)
    assert in_short(jobs([*SLIMMED, ROUNDS], workshop(tmp_path))) == [
        (TRAINED, [], [SLIMMED[1].place], ""),
        (SLIMMED[0].place, [SLIMMED[0].place], [], ""),
        (SLIMMED[1].place, [SLIMMED[1].place], [], TRAINED),
        (ROUNDS.place, [ROUNDS.place], [], ""),
    ]


def test_training_from_scratch_waits_for_no_weights(tmp_path: Path) -> None:
    asked = [PRUNED, SLIMMED[0]]
    made_records.write(tmp_path / "results", [replace(needed, scratch=False) for needed in asked])
    assert in_short(jobs(asked, workshop(tmp_path))) == [(one.place, [one.place], [], "") for one in asked]
    assert jobs(asked, workshop(tmp_path), scratch=False) == []


def test_data_that_cannot_be_had_cost_the_others_nothing(tmp_path: Path) -> None:
    nowhere = replace(BASELINE, experiment=replace(BASELINE.experiment, data=str(tmp_path / "nowhere")))
    shop = workshop(tmp_path)
    fetch([Job("a", [nowhere]), Job("b", [BASELINE])], shop)
    assert list(shop.opened) == ["digits"]


def test_trainings_by_ista_share_their_warm_up_in_one_process(tmp_path: Path) -> None:
    places = [needed.place for needed in BY_ISTA]
    assert in_short(jobs(BY_ISTA, workshop(tmp_path))) == [("digits/digits_net/ista-warm-up-seed0", places, [], "")]


def test_a_training_that_fails_takes_only_what_is_made_of_it_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = replace(SLIMMED[0], experiment=replace(SLIMMED[0].experiment, model="tests.small_runs:lost"))
    with pytest.raises(RunsFailed) as failed:
        made_in_two([lost, BASELINE], tmp_path)
    first, second = str(failed.value).splitlines()
    assert first.startswith(f"{lost.trained_at}: ") and "lost" in first
    assert second == f"{lost.place} was not begun: it needs what {lost.trained_at} was to make"
    assert Records(tmp_path / "results").lacks(BASELINE) == ""


def test_a_folder_that_is_refused_costs_no_other_that_shares_its_training(tmp_path: Path) -> None:
    refused, other = (replace(needed, scratch=False) for needed in SLIMMED)
    folder = tmp_path / "runs" / refused.place
    claim(folder, BASELINE.experiment)
    (folder / "finetuned.safetensors").touch()
    with pytest.raises(RunsFailed) as failed:
        made_in_two([refused, other, replace(PRUNED, scratch=False)], tmp_path)
    first, second = str(failed.value).splitlines()
    assert first.startswith(f"{refused.trained_at}: {folder / 'config.json'}: the folder belongs to a run with ")
    assert second == f"{refused.place} was not begun: it needs what {refused.trained_at} was to make"
    assert sorted(recorded(tmp_path)) == sorted(f"{needed.place}.json" for needed in (other, PRUNED))


def test_after_ctrl_c_the_same_command_goes_on_where_it_stopped(tmp_path: Path, one_thread: None) -> None:
    needs = [replace(PRUNED, experiment=LONGER, scratch=False), BASELINE]
    process = processes.start(make_in_two, needs, tmp_path / "stopped")
    training = tmp_path / "stopped/runs" / TRAINED / "train"
    wait_for(training)
    os.kill(process.pid or 0, signal.SIGINT)
    process.join()
    told = (tmp_path / "stopped/told").read_text()
    assert told == f"stopped and saved in {tmp_path / 'stopped/runs'}: give the same command again to go on"
    assert list(training.glob("at-*")) and not (tmp_path / "stopped/results" / f"{TRAINED}.json").exists()
    made_in_two(needs, tmp_path / "stopped")
    run_missing(needs, workshop(tmp_path / "straight"))
    assert recorded(tmp_path / "stopped") == recorded(tmp_path / "straight") != {}


def test_the_command_works_in_so_many_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Row("small", "two small networks", (PRUNED, BASELINE))
    monkeypatch.setattr("otprune.cli.reproduce.row", lambda name: {"small": small}[name])
    folders = {"out": tmp_path / "runs", "results": tmp_path / "results", "figures": tmp_path / "figures"}
    for said in (f"recorded {tmp_path / 'results' / BASELINE.place}.json", "nothing to run: 2 of 2 records"):
        done = run_here("reproduce", "small", processes=2, device="cpu", **folders)
        assert done.code == 0 and said in done.out and "2 of 2" in done.out, done
    assert run_here("reproduce", "small", processes=0, **folders).code == 2
