"""The settings of a run and what was measured of it, as its folder tells: by files of their own, or by its record.

A record is believed as far as it is of the models that are there: after it was written, another may have been pruned.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments.contents import Record, Results, well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import (
    CONFIGURATION,
    FINETUNED,
    PLAN,
    PRUNED,
    RECORD,
    RESULTS,
    SCRATCH,
    SPARSE,
    found_in,
    read_json,
)
from otprune.plan import PruningPlan

# What a record has of each model.
_MEASURED = {
    SPARSE: "accuracy_sparse",
    PRUNED: "layers",
    FINETUNED: "accuracy_finetuned",
    SCRATCH: "accuracy_scratch",
}


def configuration(folder: Path) -> Experiment | None:
    """The experiment that a folder belongs to, where it belongs to one; if its file is gone, its record tells.

    >>> configuration(Path("nowhere"))
    """
    path = folder / CONFIGURATION
    if path.exists():
        return Experiment.from_dict(read_json(path), str(path))
    recorded = _recorded(folder)
    return Experiment.from_dict(recorded["experiment"], str(folder / RECORD)) if recorded else None


def measured(folder: Path) -> dict[str, Any]:
    """What the stages of a run have measured so far; what was pruned and has lost that is refused.

    Trained weights can be in a folder of which nothing was measured: they are copied there to be pruned otherwise.

    >>> measured(Path("nowhere"))
    {}
    """
    found, made = as_far_as_known(folder), [name for name in (PRUNED, FINETUNED, SCRATCH) if (folder / name).exists()]
    if made and not found and not (folder / RESULTS).exists():
        names = " and ".join(made)
        anew = f", or delete {names}, too: the same commands make them anew" if (folder / SPARSE).exists() else ""
        raise TrainingError(
            f"{folder}: {RESULTS} is gone, and no {RECORD} here tells what was measured of {names}. "
            f"Put back a copy of it, from where {names} came from{anew}."
        )
    return found


def as_far_as_known(folder: Path) -> dict[str, Any]:
    """The same for who only looks at a run: nothing where that is gone.

    >>> as_far_as_known(Path("nowhere"))
    {}
    """
    path = folder / RESULTS
    if path.exists():
        return dict(well_formed(Results, read_json(path), path))
    recorded = _recorded(folder)
    return dict(recorded["results"]) if recorded and _is_of_these_settings(recorded, folder) else {}


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


def _recorded(folder: Path) -> dict[str, Any] | None:
    """The record of a run, if it tells of all models that are there and of no others."""
    found = found_in(folder / RECORD) or {}
    if not {"experiment", "results"} <= found.keys():
        return None
    record: dict[str, Any] = dict(well_formed(Record, found, folder / RECORD))
    there, results = [name for name in _MEASURED if (folder / name).exists()], record["results"]
    told = all(_MEASURED[name] in results for name in there)
    return record if there and told and _is_of_the_plan(folder, results) else None


def _is_of_these_settings(recorded: Mapping[str, Any], folder: Path) -> bool:
    """As they are read: what a version before did not write is as it is by default."""
    theirs = found_in(folder / CONFIGURATION)
    if theirs is None:
        return True
    told = Experiment.from_dict(recorded["experiment"], str(folder / RECORD))
    try:
        return Experiment.from_dict(theirs, str(folder / CONFIGURATION)) == told
    except TrainingError:
        return False


def _is_of_the_plan(folder: Path, results: Mapping[str, Any]) -> bool:
    """Whether the pruned model that results are of is the one that is there, where one is."""
    if not (folder / PRUNED).exists():
        return True
    try:
        plan = PruningPlan.load(folder / PLAN)
    except OtpruneError:
        return False
    kept = [(layer.name, len(layer.kept), layer.threshold) for layer in plan.layers]
    told = [(layer.get("name"), layer.get("kept"), layer.get("threshold")) for layer in results.get("layers", ())]
    return (kept, plan.removed) == (told, results.get("removed"))
