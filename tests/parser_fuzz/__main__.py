"""The long run: every parser of outside bytes is given many damaged files.

python -m tests.parser_fuzz --inputs 200000 --seed 0 --json results/parsers.json

Input i of a parser is drawn by `random.Random(f"{seed} {parser} {i}")`. An input that ends in anything but success or
an otprune error, that takes more than a minute or more than 3 GiB, or that the process dies of, is a failure and is
kept in the record. The record is written every 200 inputs. A run that was broken off goes on from its record if that
has the same seed, the same code and the same machine; otherwise it starts afresh.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.long_runs import ROOT
from tests.parser_fuzz.record import Parser, Record, started
from tests.parser_fuzz.targets import shares
from tests.parser_fuzz.working import tried

WRITE_EVERY = 200
AT_A_TIME = 2000  # inputs of one parser, before the next has its turn


def main() -> None:
    """Run, and fail if any input did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=200_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0, help="which sequence of inputs")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "parsers.json", help="the record")
    options = parser.parse_args()
    record = run(options.inputs, options.seed, options.json)
    print(summary(record))
    sys.exit(1 if record.failures else 0)


def run(inputs: int, seed: int, path: Path) -> Record:
    """Try inputs until the record counts so many, the parsers taking turns."""
    record, asked = started(seed, path), shares(inputs)
    while waiting := [name for name, most in asked.items() if record.parsers.get(name, Parser()).inputs < most]:
        for name in waiting:
            _turn(record, name, asked[name], path)
    return record


def _turn(record: Record, name: str, most: int, path: Path) -> None:
    parser = record.parsers.setdefault(name, Parser())
    for one in tried(name, record.seed, range(parser.inputs, min(parser.inputs + AT_A_TIME, most))):
        parser.add(one.outcome, one.number, one.content, one.problem)
        parser.seconds += one.seconds
        if one.problem is not None:
            print(f"{name}, input {one.number}: {one.problem.splitlines()[-1]}", flush=True)
        if parser.inputs % WRITE_EVERY == 0:
            record.write(path)
    record.write(path)
    print(f"{name}: {parser.inputs} of {most}; {summary(record)}", flush=True)


def summary(record: Record) -> str:
    """One line.

    >>> summary(Record(seed=0, code="", provenance={}))
    '0 inputs, 0 accepted, 0 refused, 0 failures'
    """
    found = record.parsers.values()
    counts = (f"{sum(getattr(parser, name) for parser in found)} {name}" for name in ("inputs", "accepted", "refused"))
    return ", ".join([*counts, f"{record.failures} failures"])


if __name__ == "__main__":
    main()
