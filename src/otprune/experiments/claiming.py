"""Whose a folder is: that of a run with its settings, or of a sweep or of rounds, which have folders of runs in it."""

from collections.abc import Sequence
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import flat
from otprune.experiments.folder import (
    CONFIGURATION,
    DEPENDENT,
    OWN_FILES,
    PRUNED,
    RECORD,
    ROUNDS_ASKED,
    SPARSE,
    found_in,
    is_settled,
    left_any,
    write_json,
)
from otprune.experiments.run_facts import configuration

SHOWN = 3  # of the runs in a folder


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
    if found == experiment and (folder / CONFIGURATION).exists():
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


def require_no_file_of_a_run(path: Path) -> None:
    """Refuse to write over what a run needs.

    >>> require_no_file_of_a_run(Path("nowhere/config.json"))
    """
    folder = path.resolve().parent
    if path.name in OWN_FILES and (is_run(folder) or (folder / ROUNDS_ASKED).exists()):
        raise TrainingError(f"{path}: is a file of a run, which would be lost: name another file")


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


def _require_same_where_done(folder: Path, found: Experiment, asked: Experiment) -> None:
    theirs = flat(found.to_dict())
    for name, value in flat(asked.to_dict()).items():
        if theirs[name] != value and not _is_open(folder, name.partition(".")[0]):
            told = CONFIGURATION if (folder / CONFIGURATION).exists() else RECORD
            raise TrainingError(
                f"{folder / told}: the folder belongs to a run with {name}={theirs[name]}, not {value}. "
                f"{_way_out(folder, name)}"
            )


def _way_out(folder: Path, name: str) -> str:
    if name.startswith("pruning."):
        delete = "" if left_any(folder, DEPENDENT["pruning"][1:]) else f", or delete {PRUNED} here"
        return f"To prune it otherwise, copy {CONFIGURATION} and {SPARSE} to another folder{delete}."
    return "Use another folder, or the same settings to go on with it."


def _is_open(folder: Path, section: str) -> bool:
    return section in DEPENDENT and not left_any(folder, DEPENDENT[section])
