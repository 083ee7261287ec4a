"""The long run: how far trainings by several processes end from those by one, and whether they survive kills.

python -m tests.ddp_difference --json results/ddp.json

Networks with batch norms are trained on the digits by one process and by groups of several on loopback, batch norms
synchronized, with the same batches. Where a network has kinks, as ReLU and max pools have, one rounding that falls on
the other side of one changes a training for good, be it by one process or by several. So beside the difference stands
how far the group and the one process are from one process in fp64, and "smooth" has no kinks.

Then one of two processes is killed at a step, torchrun starts both again, and what they end with is compared with a
training that nobody disturbed.

The record is written after each part. A run that was broken off goes on from its record if that is of the same code and
machine; otherwise it starts afresh.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from otprune import models
from otprune.provenance import provenance
from otprune.training.run import Training
from tests import groups
from tests.disturbed import KILLED, restarts, train_disturbed
from tests.disturbed import TRAINING as DISTURBED
from tests.long_runs import ROOT, digest_of, gone_on_from, write

PROCESSES = (2, 4)
EPOCHS = {"smooth": 10, "plain": 10, "digits_net": 5}
KILLS = [(rank, step) for step in (2, 21, 22, 30, 63) for rank in (0, 1)]


def digits_net() -> nn.Module:
    torch.manual_seed(0)
    return models.digits_net().double()


def smooth() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12), nn.SiLU()),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 10)),
    ).double()


NETWORKS: dict[str, Callable[[], nn.Module]] = {"smooth": smooth, "plain": groups.net, "digits_net": digits_net}
PRECISIONS = {"fp32": torch.float32, "fp64": torch.float64}


def main() -> None:
    """Measure what the record lacks, and fail if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "ddp.json", help="the record")
    path = parser.parse_args().json
    record = begun(path)
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            compare(name, record, Path(folder), path)
        for rank, step in KILLS:
            kill(rank, step, record, Path(folder), path)
    print(f"{record['restarts_survived']} of {record['kills']} kills survived")
    sys.exit(record["restarts_survived"] < record["kills"])


def begun(path: Path) -> dict[str, Any]:
    """The record to go on from, or an empty one."""
    fresh = {"code": fingerprint(), "provenance": provenance()}
    empty = {"differences": [], "killed": [], "kills": 0, "restarts_survived": 0}
    return fresh | empty | gone_on_from(path, fresh)


def fingerprint() -> str:
    """A digest of what trains, and of what measures it.

    >>> len(fingerprint())
    64
    """
    tests = [ROOT / "tests" / f"{name}.py" for name in ("ddp_difference", "disturbed", "groups", "processes")]
    return digest_of([*(ROOT / "src" / "otprune" / "training").rglob("*.py"), *tests])


def compare(name: str, record: dict[str, Any], folder: Path, path: Path) -> None:
    """Train a network in both precisions by one process and by several, unless that is done."""
    if any(one["network"] == name for one in record["differences"]):
        return
    training = Training(epochs=EPOCHS[name], batch=64, rate=0.05, lam=1e-3, sync_batch_norm=True)
    alone = {kind: trained(name, kind, 1, training, folder) for kind in PRECISIONS}
    found = [
        measured(name, kind, size, training, trained(name, kind, size, training, folder), alone)
        for kind in PRECISIONS
        for size in PROCESSES
    ]
    record["differences"] += found
    write(path, record)
    for one in found:
        print(f"{name} {one['precision']}, {one['processes']} processes: {one['largest_difference']:.1e}", flush=True)


def measured(
    name: str, kind: str, size: int, training: Training, group: dict[str, Tensor], alone: dict[str, dict[str, Tensor]]
) -> dict[str, Any]:
    """How far a group ended from one process in the same precision, and both of them from one in fp64."""
    return {
        "network": name,
        "precision": kind,
        "processes": size,
        "epochs": training.epochs,
        "batch": training.batch,
        "lam": training.lam,
        "momentum": training.momentum,
        "weight_decay": training.weight_decay,
        "largest_difference": groups.difference(group, alone[kind]),
        "largest_difference_from_fp64": groups.difference(group, alone["fp64"]),
        "largest_difference_of_one_process_from_fp64": groups.difference(alone[kind], alone["fp64"]),
    }


def trained(name: str, kind: str, size: int, training: Training, folder: Path) -> dict[str, Tensor]:
    place = folder / f"{name}-{kind}-{size}"
    groups.together(size, groups.trained, place, training, partial(built, name, kind))
    return groups.found(place)


def built(name: str, kind: str) -> nn.Module:
    return NETWORKS[name]().to(PRECISIONS[kind])


def kill(rank: int, step: int, record: dict[str, Any], folder: Path, path: Path) -> None:
    """Kill one of two processes in a step, unless that is done."""
    if [rank, step] in [[one["rank"], one["step"]] for one in record["killed"]]:
        return
    whole, place, begin = folder / "whole", folder / f"killed-{rank}-{step}", time.perf_counter()
    if not whole.exists():
        whole.mkdir()
        groups.together(2, train_disturbed, whole)
    place.mkdir()
    options = ("--max-restarts", "1")
    ended = groups.torchrun("tests.disturbed", str(place), options=options, **{KILLED: f"{rank}:{step}"})
    same = ended.returncode == 0 and groups.difference(groups.found(place), groups.found(whole)) == 0
    again = restarts(place) if same else 0
    seconds = round(time.perf_counter() - begin, 1)
    record["killed"].append({"rank": rank, "step": step, "of": steps(), "same_weights": same, "seconds": seconds})
    record["kills"] += 1
    record["restarts_survived"] += again
    write(path, record)
    print(f"rank {rank} killed in step {step}: {'the same weights' if same else ended.stderr}", flush=True)


def steps() -> int:
    """Of a training that is disturbed."""
    return DISTURBED.epochs * (len(groups.DIGITS.train) // DISTURBED.batch)


if __name__ == "__main__":
    main()
