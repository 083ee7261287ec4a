"""The long run: thousands of random networks, each pruned by a random mask and compared with the masked original.

python -m tests.fuzz --count 5000 --seed 0 --json results/fuzz.json

Network i of seed s is drawn by `random.Random(s * 1_000_000 + i)`. The record is written every 50 networks. A run that
was broken off goes on from its record if that has the same seed, the same code and the same machine; otherwise it
starts afresh, because a record that mixes two versions of the code says nothing about either.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from otprune.provenance import provenance
from tests.checking import TOLERANCE, Outcome
from tests.long_runs import ROOT, digest_of, gone_on_from, sources, write
from tests.net_patterns import patterns
from tests.random_nets import RandomChoices, Spec, build, check, gammas, random_mask, random_spec

COUNTERS = ("frozen_reasons", "patterns")
WORKERS = 2
WRITE_EVERY = 50


class Result(NamedTuple):
    """What became of one network: an outcome, or the traceback of what went wrong."""

    number: int
    spec: Spec
    mask: dict[str, list[int]]
    outcome: Outcome | None
    problem: str | None


@dataclass
class Record:
    """The sums over all networks so far."""

    seed: int
    code: str
    provenance: dict[str, Any]
    networks: int = 0
    with_something_removed: int = 0
    informative: int = 0
    bn_channels: int = 0
    masked: int = 0
    removed: int = 0
    largest_error: float = 0.0
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)
    frozen_reasons: Counter[str] = field(default_factory=Counter)
    patterns: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count one more network."""
        self.networks += 1
        self.patterns.update(patterns(result.spec))
        if result.outcome is not None:
            self._add_outcome(result.outcome)
        if result.problem is not None:
            self.failures.append(
                {"number": result.number, "spec": result.spec.to_json(), "mask": result.mask, "problem": result.problem}
            )

    def _add_outcome(self, outcome: Outcome) -> None:
        self.with_something_removed += outcome.removed > 0
        self.informative += outcome.informative
        self.bn_channels += outcome.bn_channels
        self.masked += outcome.masked
        self.removed += outcome.removed
        self.frozen_reasons.update(outcome.reasons)
        if math.isfinite(outcome.error):
            self.largest_error = max(self.largest_error, outcome.error)

    def write(self, path: Path) -> None:
        """Write the record, the most frequent reasons and patterns first."""
        write(path, vars(self) | {name: dict(getattr(self, name).most_common()) for name in COUNTERS})

    @staticmethod
    def of(data: dict[str, Any]) -> Record:
        """The record that `write` wrote, or the beginning of one."""
        return Record(**data | {name: Counter(data.get(name, {})) for name in COUNTERS})


def main() -> None:
    """Run, and fail if any network failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="networks in all")
    parser.add_argument("--seed", type=int, default=0, help="which sequence of networks")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "fuzz.json", help="the record")
    options = parser.parse_args()
    record = run(options.count, options.seed, options.json)
    print(summary(record))
    sys.exit(1 if record.failures else 0)


def run(count: int, seed: int, path: Path) -> Record:
    """Check networks until the record counts `count` of them."""
    record = started(seed, path)
    jobs = [(seed, index) for index in range(record.networks, count)]
    # Not forked: a process that has run torch holds threads and locks that a fork would break.
    with multiprocessing.get_context("spawn").Pool(WORKERS, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        accumulate(record, pool.imap(checked, jobs, chunksize=5), path)
    return record


def started(seed: int, path: Path) -> Record:
    """The record to go on from: the one in the file if it is of this run, else an empty one."""
    return Record.of(gone_on_from(path, {"seed": seed, "code": fingerprint(), "provenance": provenance()}))


def fingerprint() -> str:
    """A digest of the code under test and of what tests it.

    >>> len(fingerprint())
    64
    """
    return digest_of([*sources(), *_testing_code()])


def _testing_code() -> Iterable[Path]:
    tests = ROOT / "tests"
    return [*tests.glob("net_*.py"), *tests.glob("net_*/*.py"), tests / "random_nets.py", tests / "checking.py"]


def accumulate(record: Record, results: Iterable[Result], path: Path) -> None:
    """Count the results as they come, in order, and write the record now and then and at the end."""
    before, begin = record.seconds, time.perf_counter()
    for result in results:
        record.add(result)
        record.seconds = before + time.perf_counter() - begin
        if result.problem is not None:
            print(f"network {result.number} failed: {result.problem.splitlines()[-1]}", flush=True)
        if record.networks % WRITE_EVERY == 0:
            record.write(path)
            print(summary(record), flush=True)
    record.write(path)


def drawn(seed: int, index: int) -> tuple[Spec, dict[str, list[int]]]:
    """Network and mask number `index`.

    >>> drawn(0, 3) == drawn(0, 3)
    True
    """
    rng = random.Random(seed * 1_000_000 + index)
    spec = random_spec(rng)
    return spec, random_mask(RandomChoices(rng), gammas(build(spec)))


def checked(job: tuple[int, int]) -> Result:
    """Draw a network and check it; whatever goes wrong is a result like any other."""
    seed, index = job
    spec, mask = drawn(seed, index)
    try:
        outcome = check(spec, mask)
    except Exception:
        return Result(index, spec, mask, None, traceback.format_exc())
    problem = None if outcome.error <= TOLERANCE else f"pruned and masked differ by {outcome.error}"
    return Result(index, spec, mask, outcome, problem)


def summary(record: Record) -> str:
    """One line.

    >>> summary(Record(seed=0, code="", provenance={}))
    '0 networks, 0 with something removed, 0 whose output depends on the input; of 0 channels ... 0 failures; 0 s'
    """
    return (
        f"{record.networks} networks, {record.with_something_removed} with something removed, "
        f"{record.informative} whose output depends on the input; "
        f"of {record.bn_channels} channels {record.masked} masked, {record.removed} removed; "
        f"largest error {record.largest_error:.1e}; {len(record.failures)} failures; {record.seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
