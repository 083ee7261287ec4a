"""The long run: real commands killed at random moments, hundreds of times.

python -m tests.chaos --kills 200 --seed 0 --json results/chaos.json

Round i of seed s is drawn by `random.Random(s * 1_000_000 + i)`: which command, how many kills before it is let to its
end, and when each of them comes. A third of the moments are drawn by time, the others by what is done with a file, so
that many come while one is being written. Kills are shared out evenly among the verbs.

The record is written after every round. A run that was broken off goes on from its record if that has the same seed,
the same code and the same machine; otherwise it starts afresh.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.forkserver
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from otprune.cli.app import MODULES
from otprune.provenance import provenance
from tests.chaos.commands import CASES, VERBS, Usual, undisturbed
from tests.chaos.record import Record, summary
from tests.chaos.rounds import disturbed
from tests.long_runs import ROOT, digest_of, gone_on_from, sources

MOST_KILLS = 5  # in a round
IMPORTED = (  # once, by the server that the commands are forked from
    *("onnx", "onnxruntime", "onnxscript", "openvino", "torch.utils.tensorboard"),
    *(f"otprune.cli.{module}" for module in MODULES),
    *("tests.processes", "tests.small_runs"),
)


def main() -> None:
    """Run, and fail if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="which sequence of rounds")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "chaos.json", help="the record")
    options = parser.parse_args()
    multiprocessing.set_forkserver_preload(list(IMPORTED))
    multiprocessing.forkserver.ensure_running()
    record = run(options.kills, options.seed, options.json)
    print(summary(record))
    sys.exit(1 if record.failures else 0)


def run(kills: int, seed: int, path: Path, cases: Iterable[str] = tuple(CASES)) -> Record:
    """Kill until the record counts so many kills. Where something was lost, the folders are kept, and named."""
    record, place = started(seed, path), Path(tempfile.mkdtemp(prefix="otprune-chaos-"))
    usual = undisturbed(place, cases)
    before, begin = record.seconds, time.perf_counter()
    while record.kills < kills:
        _one_round(record, usual, kills, place)
        record.seconds = before + time.perf_counter() - begin
        record.write(path)
        print(summary(record), flush=True)
    if record.failures:
        print(f"what was lost, and where: {place}")
    else:
        shutil.rmtree(place)
    return record


def _one_round(record: Record, usual: dict[str, Usual], kills: int, place: Path) -> None:
    chance, verb = random.Random(record.seed * 1_000_000 + record.rounds), record.next_verb()
    name = chance.choice([name for name in usual if CASES[name].verb == verb])
    left = -(-kills // len(VERBS)) - record.kills_by_verb[verb]
    wanted = min(chance.randint(1, MOST_KILLS), left, kills - record.kills)
    here = place / f"round-{record.rounds}"
    here.mkdir()
    found = disturbed(name, usual[name], chance, wanted, here)
    record.add(found)
    for problem in found.problems:
        print(f"round {record.rounds - 1}, {name}: {problem}", flush=True)


def started(seed: int, path: Path) -> Record:
    """The record to go on from: the one in the file if it is of this run, else an empty one."""
    return Record.of(gone_on_from(path, {"seed": seed, "code": fingerprint(), "provenance": provenance()}))


def fingerprint() -> str:
    """A digest of the code that is killed, and of what kills it.

    >>> len(fingerprint())
    64
    """
    return digest_of([*sources(), *(ROOT / "tests" / "chaos").glob("*.py")])


if __name__ == "__main__":
    main()
