"""Every parser of outside bytes ends in success or in an otprune error, whatever it is given."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otprune.provenance import provenance
from tests.long_runs import ROOT
from tests.parser_fuzz.__main__ import run
from tests.parser_fuzz.record import Parser, Record, fingerprint, started
from tests.parser_fuzz.target import Target
from tests.parser_fuzz.targets import TARGETS, shares
from tests.parser_fuzz.trying import drawn, outcome

pytestmark = pytest.mark.filterwarnings("ignore")  # readers of images and of zip files warn of what they find
EXAMPLES, EXAMPLES_OF_SLOW = 50, 3
# In the long run alone: half a minute goes by until these runtimes are there.
SLOW_TO_BEGIN = {"exported ONNX", "exported OpenVINO"}

any_parser = pytest.mark.parametrize("name", [name for name in TARGETS if name not in SLOW_TO_BEGIN])


@functools.cache
def target(name: str) -> Target:
    return TARGETS[name][0]()


@any_parser
def test_honest_files_are_accepted(name: str, tmp_path: Path) -> None:
    for number, sample in enumerate(target(name).samples):
        assert outcome(target(name), sample, number, tmp_path) == "accepted"


@any_parser
def test_damaged_files_are_accepted_or_refused(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, share = tmp_path_factory.mktemp("damaged"), TARGETS[name][1]

    @settings(
        max_examples=EXAMPLES if share >= 1 else EXAMPLES_OF_SLOW,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def holds(rng: Random) -> None:
        content, number = drawn(rng, target(name))
        assert outcome(target(name), content, number, folder) in ("accepted", "refused")

    holds()


@any_parser
def test_some_bytes_are_refused(name: str, tmp_path: Path) -> None:
    if name == "training checkpoint":
        return  # a damaged one is set aside, with a warning
    assert outcome(target(name), b"\x00\xff = [", 0, tmp_path) == "refused"


def test_the_long_run_counts_and_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = {"table of latencies": TARGETS["table of latencies"]}
    monkeypatch.setattr("tests.parser_fuzz.targets.TARGETS", only)
    path = tmp_path / "parsers.json"
    Record(0, fingerprint(), provenance(), {"table of latencies": Parser(inputs=10, refused=10)}).write(path)
    first = run(40, 0, path).parsers["table of latencies"]
    assert first.inputs == first.accepted + first.refused == 40 and not first.failures and first.refused > 15
    written = json.loads(path.read_text())
    assert written["totals"] == {"inputs": 40, "accepted": first.accepted, "refused": first.refused, "failures": 0}


def test_failures_are_kept_with_their_input(tmp_path: Path) -> None:
    record = Record(0, "code", {}, {"plan": Parser()})
    record.parsers["plan"].add(None, 7, b"bad", "KeyError")
    record.write(tmp_path / "parsers.json")
    found = Record.of(json.loads((tmp_path / "parsers.json").read_text()))
    assert found == record and found.failures == 1
    assert found.parsers["plan"].failures == [{"number": 7, "problem": "KeyError", "input": "YmFk"}]


def test_another_code_starts_afresh(tmp_path: Path) -> None:
    Record(0, "other", {}, {"plan": Parser(5)}).write(tmp_path / "parsers.json")
    assert started(0, tmp_path / "parsers.json").parsers == {}


def test_every_parser_gets_its_share() -> None:
    assert all(count > 0 for count in shares(10_000).values())
    assert abs(sum(shares(10_000).values()) - 10_000) < len(TARGETS)


def test_hangs_and_allocations_are_failures() -> None:
    script = """
        from pathlib import Path
        from tests.parser_fuzz import trying
        from tests.parser_fuzz.target import Target

        def hang(content, number, folder):
            while True:
                pass

        trying.limit_memory()
        enough = trying.SECONDS
        for trying.SECONDS, read in (
            (1, hang),
            (enough, lambda *given: bytearray(trying.MEMORY + 1)),
            (enough, lambda *given: None),
        ):
            outcome, problem = trying.problem(Target("bytes", [b""], read), b"", 0, Path())
            print(outcome, problem and problem.splitlines()[-1])
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "None tests.parser_fuzz.trying.TooLongError: not done after 1 s",
        "None MemoryError",
        "accepted None",
    ], done.stderr
