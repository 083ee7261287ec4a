"""The folder of a run: its configuration, and which files of which stage are there."""

import json
import re
from pathlib import Path
from typing import Any

from otprune.errors import TrainingError
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import flat
from otprune.files import write_atomically

CONFIGURATION = "config.json"
SPARSE, PRUNED = "sparse.safetensors", "pruned.safetensors"
FINETUNED, SCRATCH = "finetuned.safetensors", "scratch.safetensors"
NUMBERS = re.compile(r"(?<=\[)[\s\d.,eE+-]+(?=\])")
MADE_BY = {SPARSE: "train", PRUNED: "prune", FINETUNED: "finetune", SCRATCH: "scratch"}

# A section can be changed until there is one of these, which depend on it. All else is settled from the start.
_DEPENDENT = {
    "pruning": (PRUNED, "finetune", FINETUNED, "scratch", SCRATCH),
    "finetuning": ("finetune", FINETUNED),
}


def write_json(path: Path, content: Any) -> None:
    """Write JSON for people to read, lists of numbers in one line, whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "note.json"), {"λ": 0.1})
    ...     json.loads(Path(folder, "note.json").read_text())
    {'λ': 0.1}
    """
    text = NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), json.dumps(content, indent=2))
    write_atomically(path, (text + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote of a dict; anything else is refused with the file's name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "note.json"), {"λ": 0.1})
    ...     read_json(Path(folder, "note.json"))
    {'λ': 0.1}
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TrainingError(f"{path}: is not what a run writes: {error}. Use another folder.") from error
    if not isinstance(content, dict):
        raise TrainingError(f"{path}: is not what a run writes. Use another folder.")
    return content


def configuration(folder: Path) -> Experiment | None:
    """The experiment that a folder belongs to, where it belongs to one.

    >>> configuration(Path("nowhere"))
    """
    path = folder / CONFIGURATION
    return Experiment.from_dict(read_json(path), str(path)) if path.exists() else None


def claim(folder: Path, experiment: Experiment) -> None:
    """Write the configuration into the run's folder, or check that what has been done there was done with it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claim(Path(folder), Experiment("vgg14", "cifar10"))
    ...     claim(Path(folder), Experiment("vgg14", "cifar100"))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: ...: the folder belongs to a run with data=cifar10, not cifar100. Use another ...
    """
    found = configuration(folder)
    if found == experiment:
        return
    if found is not None:
        _require_same_where_done(folder, found, experiment)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIGURATION, experiment.to_dict())


def _require_same_where_done(folder: Path, found: Experiment, asked: Experiment) -> None:
    theirs = flat(found.to_dict())
    for name, value in flat(asked.to_dict()).items():
        if theirs[name] != value and not _is_open(folder, name.partition(".")[0]):
            raise TrainingError(
                f"{folder / CONFIGURATION}: the folder belongs to a run with {name}={theirs[name]}, not {value}. "
                f"Use another folder, or the same settings to go on with it."
            )


def _is_open(folder: Path, section: str) -> bool:
    return section in _DEPENDENT and not any((folder / name).exists() for name in _DEPENDENT[section])
