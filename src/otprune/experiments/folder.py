"""The folder of a run: its configuration, and which files of which stage are there."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otprune.errors import TrainingError
from otprune.experiments.contents import Results, well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import flat
from otprune.files import write_atomically
from otprune.jsons import read_object
from otprune.training.checkpoint import checkpoints

CONFIGURATION = "config.json"
RESULTS, RECORD = "results.json", "record.json"
ROUNDS_ASKED = "rounds.json"  # how many rounds there are to be
SPARSE, PRUNED = "sparse.safetensors", "pruned.safetensors"
FINETUNED, SCRATCH = "finetuned.safetensors", "scratch.safetensors"
FRESH = "fresh.safetensors"  # what the next of several rounds starts from, where that is not what was fine-tuned
MODEL = ".safetensors"
SHOWN = 3  # of the runs in a folder
NUMBERS = re.compile(r"(?<=\[)[\s\d.,eE+-]+(?=\])")
MADE_BY = {SPARSE: "train", PRUNED: "prune", FINETUNED: "finetune", SCRATCH: "scratch"}

# What helps against a damaged file, where it is not simply made anew.
WAYS_OUT = {
    CONFIGURATION: "Put back a copy of it, or delete it and give the command that began the run again, as it was.",
    RESULTS: f"Put back a copy of it, or delete it with {', '.join(MADE_BY)} beside it: the same "
    "commands make all of them again, from the last checkpoints.",
    "provenance.json": "Delete it: it only tells what the stages so far ran on.",
    RECORD: "Delete it: the same command writes it anew.",
    ROUNDS_ASKED: "Delete it, and say with --rounds how many there are to be.",
    "export.json": "Delete it, and export again what it told of.",
}

# Files, and folders of checkpoints: until there is one of these, nothing is settled.
_LEFT_BY_STAGES = ("train", SPARSE, PRUNED, "finetune", FINETUNED, "scratch", SCRATCH)

# A section can be changed until there is one of these, which depend on it.
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


def configuration(folder: Path) -> Experiment | None:
    """The experiment that a folder belongs to, where it belongs to one.

    >>> configuration(Path("nowhere"))
    """
    path = folder / CONFIGURATION
    return Experiment.from_dict(read_json(path), str(path)) if path.exists() else None


def damage(folder: Path) -> TrainingError | None:
    """What is wrong with a file of a run that it cannot go on without, and that no command makes anew.

    >>> damage(Path("nowhere"))
    """
    try:
        configuration(folder)
        measured(folder)
    except TrainingError as error:
        return error
    return None


def measured(folder: Path) -> dict[str, Any]:
    """What the stages of a run have measured so far.

    >>> measured(Path("nowhere"))
    {}
    """
    path = folder / RESULTS
    return dict(well_formed(Results, read_json(path), path)) if path.exists() else {}


def claim(folder: Path, experiment: Experiment) -> None:
    """Write the configuration into the run's folder, or check that what has been done there was done with it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claim(Path(folder), Experiment("vgg14", "cifar10"))
    ...     Path(folder, SPARSE).touch()
    ...     claim(Path(folder), Experiment("vgg14", "cifar100"))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: ...: the folder belongs to a run with data=cifar10, not cifar100. Use another ...
    """
    found = configuration(folder)
    if found == experiment:
        return
    if found is not None and is_settled(folder):
        _require_same_where_done(folder, found, experiment)
    if found is None and not is_settled(folder):
        _require_no_runs_in(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIGURATION, experiment.to_dict())


def runs_in(folder: Path) -> list[str]:
    """The names of the folders in it that belong to runs.

    >>> runs_in(Path("nowhere"))
    []
    """
    return sorted(path.name for path in folder.glob("*/") if is_run(path))


def is_run(folder: Path) -> bool:
    """Whether a folder belongs to a run, by its configuration, the like of which other programs have, or by its stages.

    >>> is_run(Path("nowhere"))
    False
    """
    content = found_in(folder / CONFIGURATION) or {}
    return {"model", "data", "training"} <= content.keys() or is_settled(folder)


def some(names: Sequence[str]) -> str:
    """The first of them, in words.

    >>> some(["a", "b", "c", "d"])
    'a, b, c, …'
    """
    return ", ".join([*names[:SHOWN], *(["…"] if len(names) > SHOWN else [])])


def require_no_rounds(folder: Path, what: str) -> None:
    """Refuse a folder of rounds for something that has folders of runs of its own.

    >>> require_no_rounds(Path("nowhere"), "a sweep")
    """
    found = [name for name in (ROUNDS_ASKED, RECORD) if (folder / name).exists()]
    if found:
        raise TrainingError(f"{folder}: has {found[0]}, so it belongs to rounds. Use another folder for {what}.")


def require_no_run(folder: Path, what: str) -> None:
    """Refuse a folder that is a run's for something that has folders of runs in it.

    >>> require_no_run(Path("nowhere"), "rounds")
    """
    if is_run(folder):
        raise TrainingError(f"{folder}: holds a run of its own. Use another folder for {what}.")


def _require_no_runs_in(folder: Path) -> None:
    """Refuse the folder of rounds or of a sweep for a run, whose files would lie among theirs."""
    if (folder / RECORD).exists():
        raise TrainingError(
            f"{folder / RECORD}: is the record of rounds, and would be overwritten. Use another folder."
        )
    inside = runs_in(folder)
    if inside:
        raise TrainingError(
            f"{folder}: holds the runs {some(inside)}, so it is no folder for a run itself. Use another one."
        )


def is_settled(folder: Path) -> bool:
    """Whether a stage has left something in the folder, even if only a checkpoint.

    >>> is_settled(Path("nowhere"))
    False
    """
    return _left_any(folder, _LEFT_BY_STAGES)


def left_after_pruning(folder: Path) -> list[str]:
    """The files and folders of checkpoints that stages after pruning have left.

    >>> left_after_pruning(Path("nowhere"))
    []
    """
    return [name for name in (*_DEPENDENT["pruning"][1:], FRESH) if _left_any(folder, [name])]


def _require_same_where_done(folder: Path, found: Experiment, asked: Experiment) -> None:
    theirs = flat(found.to_dict())
    for name, value in flat(asked.to_dict()).items():
        if theirs[name] != value and not _is_open(folder, name.partition(".")[0]):
            raise TrainingError(
                f"{folder / CONFIGURATION}: the folder belongs to a run with {name}={theirs[name]}, not {value}. "
                f"{_way_out(folder, name)}"
            )


def _way_out(folder: Path, name: str) -> str:
    if name.startswith("pruning."):
        delete = "" if _left_any(folder, _DEPENDENT["pruning"][1:]) else f", or delete {PRUNED} here"
        return f"To prune it otherwise, copy {CONFIGURATION} and {SPARSE} to another folder{delete}."
    return "Use another folder, or the same settings to go on with it."


def _is_open(folder: Path, section: str) -> bool:
    return section in _DEPENDENT and not _left_any(folder, _DEPENDENT[section])


def _left_any(folder: Path, names: Sequence[str]) -> bool:
    """Whether one of these files is there, or a checkpoint in one of these folders."""
    return any((folder / name).is_file() if name.endswith(MODEL) else checkpoints(folder / name) for name in names)
