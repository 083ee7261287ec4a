"""A sweep on a real Ray cluster of three nodes: broken off, gone on with, and a node killed in the middle of it."""

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import Done, said
from tests.ray_cluster import ray_cluster
from tests.ray_sweeps import Lost, Sweep, lose_a_node, outcome
from tests.small_runs import read

pytest.importorskip("ray")

ASKED: dict[str, object] = {
    "model": "tests.small_runs:net",
    "data": "digits",
    "device": "cpu",
    "epochs": 4,
    "proximal": None,
    "finetune_epochs": 15,
    "seeds": 2,
}
GOOD = [f"lam{lam}-seed{seed}" for lam in ("0.3", "0.2") for seed in (0, 1)]
BAD = ["lam1e30-seed0", "lam1e30-seed1"]


def is_being_finetuned(folder: Path) -> bool:
    return folder.name in GOOD and (folder / "sparse.safetensors").exists()


@dataclass
class Swept:
    """What came of it all."""

    here: Path
    there: Path
    broken_off: Done
    saved_by_then: set[str]
    lost: Lost
    beside: Done
    done: Done
    again: Done


def test_a_sweep_on_a_cluster_comes_out_as_on_one_machine_through_ctrl_c_and_a_lost_node(tmp_path: Path) -> None:
    """One test, so that there is one cluster, however tests are shared out among processes."""
    swept = sweep(tmp_path)
    ctrl_c_saves_what_is_under_way_and_says_how_to_go_on(swept)
    the_run_of_a_lost_node_goes_on_elsewhere_from_what_was_saved(swept)
    every_run_is_to_the_last_bit_what_it_is_on_one_machine(swept)
    runs_that_fail_are_told_and_the_others_finish(swept)
    another_sweep_in_the_same_folders_is_refused(swept)
    a_second_call_runs_nothing_and_says_so(swept)
    nothing_half_written_is_left_and_nobody_is_kept_out(swept)


def sweep(top: Path) -> Swept:
    here, there = top / "here", top / "there"
    local = Sweep(top / "local", **ASKED, out=here, lam="0.3,0.2")
    with ray_cluster() as cluster:
        asked = {**ASKED, "ray": cluster.address, "out": there}
        # Those that fail come first, so that there is much to do yet when it is broken off, and when a node is lost.
        first = Sweep(top / "first", **asked, lam="1e30,0.3,0.2")
        first.until(lambda: "train lam" in first.said)
        os.kill(first.process.pid or 0, signal.SIGINT)
        broken_off = first.ended()
        saved = {path.parent.parent.name for path in there.glob("*/train/at-*.safetensors")}
        second = Sweep(top / "second", **asked, lam="1e30,0.3,0.2")
        lost = lose_a_node(cluster, second, is_being_finetuned)
        os.kill(second.process.pid or 0, signal.SIGSTOP)  # so that it cannot be over
        beside = said("sweep", **asked, lam="1e30,0.3,0.2")
        os.kill(second.process.pid or 0, signal.SIGCONT)
        done = second.ended()
    again = said("sweep", **asked, lam="0.3,0.2")  # there is no cluster any more
    assert local.ended().code == 0
    return Swept(here, there, broken_off, saved, lost, beside, done, again)


def beginnings(done: Done, beginning: str) -> list[str]:
    return [line for line in done.out.splitlines() if line.startswith(beginning)]


def ctrl_c_saves_what_is_under_way_and_says_how_to_go_on(swept: Swept) -> None:
    assert swept.broken_off.code == 130
    # In between it tells which of those that fail had done so by then, which may be none.
    told = re.compile(rf"stopped and saved in {re.escape(str(swept.there))}.*: give the same command again to go on")
    assert any(map(told.fullmatch, swept.broken_off.err.splitlines())) and swept.saved_by_then
    again = [line for run in swept.saved_by_then for line in beginnings(swept.done, f"{run}: started on ")]
    assert all(", goes on from " in line for line in again)


def the_run_of_a_lost_node_goes_on_elsewhere_from_what_was_saved(swept: Swept) -> None:
    moved = beginnings(swept.done, f"{swept.lost.run}: moved to ")
    assert moved and all(swept.lost.node not in line and ", goes on from " in line for line in moved)
    assert f"{swept.lost.run}: finished" in swept.done.out


def every_run_is_to_the_last_bit_what_it_is_on_one_machine(swept: Swept) -> None:
    for run in GOOD:
        assert outcome(swept.there / run) == outcome(swept.here / run), run


def runs_that_fail_are_told_and_the_others_finish(swept: Swept) -> None:
    assert swept.done.code == 1
    told = [line for line in swept.done.err.splitlines() if line.startswith(str(swept.there))]  # Ray speaks there too
    assert [line.partition(": ")[0] for line in told] == [str(swept.there / run) for run in BAD], swept.done.err
    assert all("no layer of the network has a scaling factor other than zero" in line for line in told)
    assert {run["run"] for run in read(swept.there / "summary.json")["runs"]} == set(GOOD)
    assert not any((swept.there / run / "record.json").exists() for run in BAD)


def another_sweep_in_the_same_folders_is_refused(swept: Swept) -> None:
    assert swept.beside.code == 1
    assert swept.beside.err.startswith(f"{swept.there / BAD[0]}: another process is at work in this folder")


def a_second_call_runs_nothing_and_says_so(swept: Swept) -> None:
    assert swept.again.code == 0, swept.again.err
    assert "every run is done already" in swept.again.out and "started on" not in swept.again.out
    assert swept.again.out.count("│ 0.3 │") == 3  # its two seeds, and their mean


def nothing_half_written_is_left_and_nobody_is_kept_out(swept: Swept) -> None:
    assert not [path for path in swept.there.rglob(".*") if path.name != ".lock"]
    assert said("finetune", out=swept.there / GOOD[0]).code == 0
