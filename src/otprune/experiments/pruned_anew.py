"""When a network is pruned anew, what later stages came to is of another network, unless the plan is the same.

Their files are never touched: as long as they are there, pruning is refused. What was only measured is left out, and
that is said.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments.attribution import forget
from otprune.experiments.folder import PLAN, PRUNED, left_after_pruning
from otprune.experiments.pipeline import Pipeline
from otprune.plan import PruningPlan

LEFT_OUT = "pruned anew, by another plan than before: what was measured after {} is left out"
LATER = {"finetune": "fine-tuning", "scratch": "training from scratch"}
_HISTORIES = {"finetune": "finetuning", "scratch": "scratch"}
_ACCURACIES = {"finetune": "finetuned", "scratch": "scratch"}
_BY_STAGE = ("seconds", "test_by_epoch")


def require_no_files_of_another(folder: Path, plan: PruningPlan) -> None:
    """Refuse to prune by a plan where a later stage has left files of what another plan made.

    >>> import torch
    >>> from torch import nn
    >>> import otprune as ot
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1))
    >>> require_no_files_of_another(Path("nowhere"), ot.plan(net, torch.zeros(1, 1, 8, 8), ot.OptimalThreshold()))
    """
    left = left_after_pruning(folder)
    if left and not _is_as_before(folder, plan):
        raise TrainingError(
            f"{folder}: as far as is known, {' and '.join(left)} belong to another network than it would be pruned to "
            f"now, by these settings and this version of otprune. Put {PRUNED} back, or move what is named elsewhere."
        )


def leave_out_of_another(pipeline: Pipeline, plan: PruningPlan) -> list[str]:
    """Take out of the results what later stages measured, unless the plan is as before; return what is to be said."""
    stages = [stage for stage in LATER if _measured(pipeline.results, stage)]
    if not stages or _is_as_before(pipeline.folder, plan):
        return []
    for stage in stages:
        pipeline.results = without(pipeline.results, stage)
    forget(pipeline.folder, stages)
    return [LEFT_OUT.format(" and ".join(LATER[stage] for stage in stages))]


def without(results: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The results without all that a later stage measured.

    >>> found = {"accuracy_pruned": 0.9, "accuracy_finetuned_1": 0.9, "seconds": {"prune": 1, "finetune": 9}}
    >>> without(found, "finetune")
    {'accuracy_pruned': 0.9, 'seconds': {'prune': 1}}
    """
    of_it = _measured(results, stage)
    kept = {name: value for name, value in results.items() if name not in of_it}
    for name in _BY_STAGE:
        if name in kept:
            kept[name] = {key: value for key, value in kept[name].items() if not key.startswith(stage)}
    return kept


def only(results: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """What a later stage measured, and nothing else.

    >>> found = {"accuracy_pruned": 0.9, "accuracy_scratch": 0.9, "seconds": {"prune": 1, "scratch": 9}}
    >>> only(found, "scratch")
    {'accuracy_scratch': 0.9, 'seconds': {'scratch': 9}}
    """
    found = {name: results[name] for name in _measured(results, stage)}
    for name in set(_BY_STAGE) & results.keys():
        found[name] = {key: value for key, value in results[name].items() if key.startswith(stage)}
    return found


def _measured(results: Mapping[str, Any], stage: str) -> list[str]:
    """The names of what a stage measured."""
    begin = tuple(f"accuracy_{where}{_ACCURACIES[stage]}" for where in ("", "held_out_"))
    return [name for name in results if name.startswith(begin) or name == _HISTORIES[stage]]


def _is_as_before(folder: Path, plan: PruningPlan) -> bool:
    """Whether the plan in the folder is this one; one that cannot be read tells nothing."""
    try:
        return (folder / PLAN).exists() and PruningPlan.load(folder / PLAN) == plan
    except OtpruneError:
        return False
