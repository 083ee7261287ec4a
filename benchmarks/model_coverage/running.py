"""Processes for attempts, each stopped when a run of it takes too long."""

import json
import multiprocessing
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from . import attempt
from .outcome import CRASHED, RUNS, TIMED_OUT

_POLL_S = 0.05

# Processes are forked from a server that has imported everything once, so that starting one takes no time.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([attempt.__name__])


def outcomes(key: str, tool: str, folder: Path, limit_s: float) -> dict[str, dict[str, Any]]:
    """The outcome of every run of a tool on a model, by the name of the run."""
    process = _CONTEXT.Process(target=attempt.attempt, args=(key, tool, folder))
    process.start()
    try:
        return _in_turn(process, [folder / f"{tool}-{run}.json" for run in RUNS], limit_s)
    finally:
        process.kill()
        process.join()


def _in_turn(process: BaseProcess, paths: list[Path], limit_s: float) -> dict[str, dict[str, Any]]:
    """A run that takes too long is the last: those after it are told to have taken too long as well."""
    found: dict[str, dict[str, Any]] = {}
    outcome: dict[str, Any] = {"status": None}
    for run, path in zip(RUNS, paths, strict=True):
        outcome = outcome if outcome["status"] == TIMED_OUT else _awaited(process, path, limit_s)
        found[run] = outcome
    return found


def _awaited(process: BaseProcess, path: Path, limit_s: float) -> dict[str, Any]:
    end = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > end:
            return {"status": TIMED_OUT, "message": f"not done after {limit_s:g} s"}
        if process.exitcode is not None and not path.exists():
            return {"status": CRASHED, "message": f"the process ended with code {process.exitcode}"}
        time.sleep(_POLL_S)
    outcome: dict[str, Any] = json.loads(path.read_text())
    return outcome
