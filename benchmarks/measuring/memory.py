"""How much memory something takes, in a process of its own."""

import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

STATUS = Path("/proc/self/status")  # Linux alone has it
Result = TypeVar("Result")


def in_a_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """What a function returns in a process that has done nothing before; it must be one that can be imported."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def resident_bytes() -> int:
    """What of this process is in memory now."""
    return _status("VmRSS")


def most_resident_bytes() -> int:
    """The most that was in memory at any time, of this process alone: `ru_maxrss` begins with its parent's."""
    return _status("VmHWM")


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    assert found is not None, f"{STATUS} has no {field}"
    return 1024 * int(found[1])
