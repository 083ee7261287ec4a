"""The folder of a run: its configuration, and which files of which stage are there."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from otprune.errors import TrainingError
from otprune.files import write_atomically
from otprune.jsons import read_object
from otprune.training.checkpoint import checkpoints

CONFIGURATION = "config.json"
RESULTS, RECORD = "results.json", "record.json"
PLAN = "plan.json"
ROUNDS_ASKED = "rounds.json"  # how many rounds there are to be
SPARSE, PRUNED = "sparse.safetensors", "pruned.safetensors"
FINETUNED, SCRATCH = "finetuned.safetensors", "scratch.safetensors"
FRESH = "fresh.safetensors"  # what the next of several rounds starts from, where that is not what was fine-tuned
MODEL = ".safetensors"
NUMBERS = re.compile(r"(?<=\[)[\s\d.,eE+-]+(?=\])")
MADE_BY = {SPARSE: "train", PRUNED: "prune", FINETUNED: "finetune", SCRATCH: "scratch"}

# What a run has for itself, in its folder.
OWN_FILES = frozenset(
    (
        *(CONFIGURATION, RESULTS, RECORD, PLAN, ROUNDS_ASKED, SPARSE, PRUNED, FINETUNED, SCRATCH, FRESH),
        *("data.json", "provenance.json", "latencies.json", "export.json"),
    )
)

# What helps against a damaged file, where it is not simply made anew.
WAYS_OUT = {
    CONFIGURATION: "Put back a copy of it, or delete it and give the command that began the run again, as it was.",
    RESULTS: f"Put back a copy of it, or delete it: what {RECORD} has of it is taken instead.",
    "provenance.json": "Delete it: it only tells what the stages so far ran on.",
    RECORD: "Delete it: the same command writes it anew.",
    ROUNDS_ASKED: "Delete it, and say with --rounds how many there are to be.",
    "export.json": "Delete it, and export again what it told of.",
}

# Files, and folders of checkpoints: until there is one of these, nothing is settled.
_LEFT_BY_STAGES = ("train", SPARSE, PRUNED, "finetune", FINETUNED, "scratch", SCRATCH)

# A section can be changed until there is one of these, which depend on it.
DEPENDENT = {
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
    way_out = WAYS_OUT.get(path.name, "Use another folder.")
    return read_object(path, lambda why: TrainingError(f"{path}: is not what a run writes: {why}. {way_out}"))


def found_in(path: Path) -> dict[str, Any] | None:
    """The same of a file that can be made anew: None where it is missing or damaged.

    >>> found_in(Path("nowhere"))
    """
    try:
        return read_json(path) if path.exists() else None
    except TrainingError:
        return None


def is_settled(folder: Path) -> bool:
    """Whether a stage has left something in the folder, even if only a checkpoint.

    >>> is_settled(Path("nowhere"))
    False
    """
    return left_any(folder, _LEFT_BY_STAGES)


def left_after_pruning(folder: Path) -> list[str]:
    """The files and folders of checkpoints that stages after pruning have left.

    >>> left_after_pruning(Path("nowhere"))
    []
    """
    return [name for name in (*DEPENDENT["pruning"][1:], FRESH) if left_any(folder, [name])]


def left_any(folder: Path, names: Sequence[str]) -> bool:
    """Whether one of these files is there, or a checkpoint in one of these folders.

    >>> left_any(Path("nowhere"), [SPARSE, "train"])
    False
    """
    return any((folder / name).is_file() if name.endswith(MODEL) else checkpoints(folder / name) for name in names)


def is_made(folder: Path, name: str) -> bool:
    """Whether the model of a stage is there; one that is cut short is refused.

    >>> is_made(Path("nowhere"), SPARSE)
    False
    """
    path = folder / name
    if not path.exists():
        return False
    if not is_whole(path):
        anew = ", or delete it: the same command makes it anew" if _can_be_made_anew(folder, name) else ""
        raise TrainingError(f"{path}: is damaged, as by a copy that was broken off. Put back a copy of it{anew}.")
    return True


def is_whole(path: Path) -> bool:
    """Whether the file of a model is as long as it says.

    >>> is_whole(Path("nowhere"))
    False
    """
    try:
        with safe_open(path, framework="numpy"):
            return True
    except (SafetensorError, FileNotFoundError):
        return False


def _can_be_made_anew(folder: Path, name: str) -> bool:
    """Trained weights can as long as nothing came of them, and all else as long as that is there which it comes of."""
    if name == SPARSE:
        return not left_any(folder, (PRUNED, *DEPENDENT["pruning"]))
    return (folder / (SPARSE if name == PRUNED else PRUNED)).exists()
