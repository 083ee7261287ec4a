"""The long run of sweeps on a Ray cluster whose nodes are killed one after the other, each replaced by a new one.

python -m tests.lost_nodes --nodes 10 --json results/nodes.json

Sweep i trains seeds of its own, on a cluster of three nodes and on this machine alone, and every weight has to be the
same. Nodes are killed in the middle of runs. The record is written after every sweep. One that was broken off goes on
from its record if that has the same code and the same machine; otherwise it starts afresh.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from otprune.experiments.cluster.driver import sweep_on
from otprune.experiments.cluster.store import reached
from otprune.experiments.experiment import Experiment, Finetuning
from otprune.experiments.following import OnScreen
from otprune.experiments.pipeline import open_pipelines
from otprune.experiments.runs_table import RunsTable
from otprune.experiments.stages import run as run_here
from otprune.provenance import provenance
from tests.long_runs import ROOT, digest_of, gone_on_from, sources, write
from tests.ray_cluster import RayCluster, ray_cluster
from tests.ray_sweeps import Watched, lose_a_node, outcome
from tests.small_runs import CPU, EXPERIMENT

RUNS = 4
SAVE_EVERY_SECONDS = 1.0
SHARE_OF_MOMENTS = 0.005  # of those that are looked at, fifty a second
LONG = replace(
    EXPERIMENT, training=replace(EXPERIMENT.training, epochs=40), finetuning=Finetuning(epochs=30, rate=0.01)
)


@dataclass
class Record:
    """The sums over all sweeps so far."""

    code: str
    provenance: dict[str, Any]
    sweeps: int = 0
    runs: int = 0
    equal: int = 0
    nodes_lost: int = 0
    retries: int = 0
    started_over: int = 0
    gone_on_from: dict[str, int] = field(default_factory=dict)


def main() -> None:
    """Run, and fail if any run came out otherwise than on one machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10, help="nodes to lose in all")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "nodes.json", help="the record")
    options = parser.parse_args()
    record = started(options.json)
    while record.nodes_lost < options.nodes:
        one_more_sweep(record, options.nodes - record.nodes_lost)
        if fingerprint() != record.code:
            sys.exit("the code was changed meanwhile, so what came of the last sweep says nothing: start again")
        write(options.json, asdict(record))
        print(summary(record), flush=True)
    sys.exit(1 if record.equal < record.runs else 0)


def started(path: Path) -> Record:
    """The record to go on from: the one in the file if it is of this code and machine, else an empty one."""
    machine = provenance() | {"ray": version("ray")}
    return Record(**gone_on_from(path, {"code": fingerprint(), "provenance": machine}))


def fingerprint() -> str:
    """A digest of what sweeps, and of what kills its nodes.

    >>> len(fingerprint())
    64
    """
    tests = ("lost_nodes", "ray_cluster", "ray_sweeps", "small_runs")
    return digest_of([*sources(), *(ROOT / "tests" / f"{name}.py" for name in tests)])


def one_more_sweep(record: Record, nodes: int) -> None:
    """Sweep on a cluster that loses at most so many nodes, then here, and compare."""
    with tempfile.TemporaryDirectory() as place:
        there, here = Path(place, "there"), Path(place, "here")
        names = [f"seed{record.sweeps * RUNS + number}" for number in range(RUNS)]
        with ray_cluster() as cluster:
            sweep = Watched(Path(place, "streams"), there, sweep_there, cluster.address, there, names)
            record.nodes_lost += lose_nodes(cluster, sweep, nodes)
            done = sweep.ended()
        assert done.code == 0, done
        Watched(Path(place, "streams here"), here, sweep_here, here, names).ended()
        note(record, done.out, [outcome(there / name) == outcome(here / name) for name in names])


def lose_nodes(cluster: RayCluster, sweep: Watched, most: int) -> int:
    """Kill nodes and add others until the sweep is over or there were enough; return how many."""
    lost, moments = 0, random.Random()
    with suppress(AssertionError):  # the sweep is over
        while lost < most:
            lose_a_node(cluster, sweep, partial(is_the_moment, moments, sweep))
            lost += 1
            cluster.add()
    return lost


def is_the_moment(moments: random.Random, sweep: Watched, folder: Path) -> bool:
    """Some time, seconds as a rule, after a run has saved something since it was last taken up."""
    return moments.random() < SHARE_OF_MOMENTS and has_got_on(sweep, folder)


def has_got_on(sweep: Watched, folder: Path) -> bool:
    """Whether a run has saved something since it was last taken up, so that a node is always lost in its midst."""
    saved, taken_up = reached(folder), f"{folder.name}: "
    return bool(saved) and not any(
        line.startswith(taken_up) and line.endswith(f"goes on from {saved}") for line in sweep.said.splitlines()
    )


def note(record: Record, said: str, equal: Sequence[bool]) -> None:
    """Add what a sweep came to."""
    moved = [line for line in said.splitlines() if ": moved to " in line]
    record.sweeps += 1
    record.runs += len(equal)
    record.equal += sum(equal)
    record.retries += len(moved)
    record.started_over += sum("goes on from" not in line for line in moved)
    for stage in (line.partition("goes on from ")[2].partition("/")[0] for line in moved):
        record.gone_on_from[stage] = record.gone_on_from.get(stage, 0) + 1


def sweep_there(address: str, out: Path, names: Sequence[str]) -> None:
    """The sweep on a cluster, with checkpoints so often that there is something to go on from."""
    follower = OnScreen(RunsTable(names), Console(width=200))
    sweep_on(address, experiments(out, names), follower, "cpu", save_every=SAVE_EVERY_SECONDS)


def sweep_here(out: Path, names: Sequence[str]) -> None:
    """The same on this machine."""
    run_here(open_pipelines(experiments(out, names), CPU))


def experiments(out: Path, names: Sequence[str]) -> dict[Path, Experiment]:
    """A run for each seed."""
    seeds = {name: int(name.removeprefix("seed")) for name in names}
    return {out / name: replace(LONG, training=replace(LONG.training, seed=seed)) for name, seed in seeds.items()}


def summary(record: Record) -> str:
    """One line.

    >>> summary(Record("", {}, sweeps=1, runs=4, equal=4, nodes_lost=3, retries=3))
    '1 sweeps: 3 nodes lost, 4 runs, 4 of them equal to the last bit; 3 times gone on elsewhere, 0 of them from nothing'
    """
    return (
        f"{record.sweeps} sweeps: {record.nodes_lost} nodes lost, {record.runs} runs, {record.equal} of them equal to "
        f"the last bit; {record.retries} times gone on elsewhere, {record.started_over} of them from nothing"
    )


if __name__ == "__main__":
    main()
