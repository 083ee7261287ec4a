"""Prune every model of the catalogue with otprune and with Torch-Pruning, a process for each; go on where it stopped.

PYTHONPATH=benchmarks python -m model_coverage
PYTHONPATH=benchmarks python -m model_coverage --only 'timm:*' --results results/coverage.json --failures failures.md
"""

import argparse
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from otprune.files import write_atomically

from .attempt import MASKS
from .catalogue import all_subjects
from .records import Record, Results, core_digest, file_digest, measuring_digest
from .running import outcomes
from .summary import failures, line, summary


def main() -> None:
    """Measure what has no record yet of this code, a line for each model, and sum up."""
    options = parse_options()
    results = Results(options.results)
    keys = [subject.key for subject in all_subjects() if fnmatchcase(subject.key, options.only)]
    digests = {"core": core_digest(), "measuring": measuring_digest()}
    missing = [key for key in keys if not _is_current(results.models.get(key), digests, options.otprune_only)]
    print(f"{len(keys)} models, {len(keys) - len(missing)} of them measured before", flush=True)
    measuring = partial(measured, results=results, digests=digests, options=options)
    pool = ThreadPoolExecutor(options.jobs)
    try:
        for key, record in zip(missing, pool.map(measuring, missing), strict=True):
            results.put(key, record)
            print(line(key, record), flush=True)
            if options.failures:
                write_atomically(options.failures, failures(results.models).encode())
    finally:
        pool.shutdown(cancel_futures=True)  # whoever interrupts the run does not want the models that are left
    print(summary({key: results.models[key] for key in keys}))


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="models whose LIBRARY:NAME matches")
    parser.add_argument("--limit-s", type=float, default=120, help="seconds for one run of one tool on one model")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time")
    parser.add_argument("--otprune-only", action="store_true", help="leave Torch-Pruning for later")
    parser.add_argument("--results", type=Path, default=Path("results/coverage.json"))
    parser.add_argument("--failures", type=Path, help="where to list what is not exact, or stays, and why")
    return parser.parse_args()


def measured(key: str, results: Results, digests: dict[str, str], options: argparse.Namespace) -> Record:
    """Both tools on one model; Torch-Pruning only where its masks or the way to measure it are new."""
    before = results.models.get(key, {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = outcomes(key, "otprune", folder, options.limit_s)
        masks = file_digest(folder / MASKS)
        drawn = json.loads((folder / MASKS).read_text())["how"] if masks else None
        known = before.get("measuring") == digests["measuring"] and before.get("masks") == masks
        theirs = before.get("torch_pruning") if known else None
        if theirs is None and not options.otprune_only:
            theirs = outcomes(key, "torch_pruning", folder, options.limit_s)
    tools = {"otprune": ours, "torch_pruning": theirs}
    return {**digests, "masks": masks, "drawn": drawn, "limit_s": options.limit_s, **tools}


def _is_current(record: Record | None, digests: dict[str, str], otprune_only: bool) -> bool:
    if record is None or (record["torch_pruning"] is None and not otprune_only):
        return False
    return all(record[name] == digest for name, digest in digests.items())


if __name__ == "__main__":
    main()
