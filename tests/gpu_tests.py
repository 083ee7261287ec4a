"""Run every test that needs a GPU, where there is one, and keep what each came to: CI has none.

python -m tests.gpu_tests --json results/gpu-tests.json
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from otprune.provenance import provenance
from tests.long_runs import ROOT, digest_of, sources, write

PYTEST = (sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider")
LIMIT = 400  # seconds for a file: networks are compiled, and a busy machine is slow


def main() -> None:
    """Runs them, a process for each file, and writes the record."""
    options = parse_options()
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here: run this where nvidia-smi shows one")
    files = files_with_gpu_tests()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        found = {name: test for part in pool.map(partial(outcomes, Path(folder)), files) for name, test in part.items()}
    counts = Counter(test["outcome"] for test in found.values())
    code = digest_of([*sources(), *(ROOT / "tests").rglob("*.py")])
    ran_on = provenance(torch.device("cuda"))
    write(options.json, {"code": code, "tests": found, "provenance": ran_on})
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    sys.exit(counts["failed"] > 0)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "gpu-tests.json", help="where the record goes")
    parser.add_argument("--jobs", type=int, default=4, help="files at a time")
    return parser.parse_args()


def files_with_gpu_tests() -> list[str]:
    """Those that mark tests for a GPU; others are not looked into, since they may need what is not installed."""
    paths = sorted((ROOT / "tests").glob("test_*.py"))
    return [f"tests/{path.name}" for path in paths if "from tests.gpu import" in path.read_text(encoding="utf-8")]


def outcomes(folder: Path, file: str, limit: float = LIMIT) -> dict[str, dict[str, Any]]:
    """What the tests of a file for a GPU came to; one that hangs costs the record of no other."""
    report = folder / f"{file.replace('/', '-')}.xml"
    try:
        done = subprocess.run([*PYTEST, f"--junitxml={report}", file], cwd=ROOT, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {file: {"outcome": "failed", "message": f"not done after {limit:g} s"}}
    if not report.exists():
        sys.exit(f"{file}: pytest ended with status {done.returncode} and no report: see above")
    cases = ElementTree.parse(report).iter("testcase")
    return {f"{file}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> dict[str, Any]:
    for kind, outcome in {"failure": "failed", "error": "failed", "skipped": "skipped"}.items():
        if (found := case.find(kind)) is not None:
            return {"outcome": outcome, "message": found.get("message", "")}
    return {"outcome": "passed", "seconds": float(case.get("time", 0))}


if __name__ == "__main__":
    main()
