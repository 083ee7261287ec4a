"""Records of benchmarks that the page tells beside those of runs."""

from pathlib import Path
from typing import Any

from otprune.errors import TrainingError
from otprune.jsons import read_object
from otprune.kinds import require_kind


def benchmark(path: Path, kind: Any, what: str) -> dict[str, Any] | None:
    """What is in a record, if it is there; a file that is no record of that kind is refused.

    >>> benchmark(Path("nowhere.json"), dict[str, Any], "first epochs")
    """
    if not path.exists():
        return None

    def refused(why: str) -> TrainingError:
        return TrainingError(f"{path}: is no record of {what}: {why}. Measure it again.")

    found = read_object(path, refused)
    try:
        require_kind(found, kind, "it")
    except ValueError as error:
        raise refused(str(error)) from error
    return found
