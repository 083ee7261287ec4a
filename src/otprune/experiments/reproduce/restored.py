"""The pruned architecture of a record, made again without the weights that it was found in.

What a layer keeps follows from which of its γ are negligible. So a fresh model whose γ are one where they are not, and
little or zero where they are, is pruned to the same architecture, and that is all that training from scratch needs.
Whether it is the same is checked by its cost.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

import otprune as ot
from otprune.errors import TrainingError
from otprune.experiments.bounding import bounds_for
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import PRUNED
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reproduce.records import Record
from otprune.experiments.stages import totals
from otprune.plan import PruningPlan
from otprune.thresholds import Rule

LITTLE = 1e-3
NEXT_TO_NOTHING = 1e-6  # far below what is negligible by any rule


def restore(pipeline: Pipeline, record: Record) -> None:
    """Write pruned.safetensors and the results of a record into the pipeline's folder, unless they are there."""
    if (pipeline.folder / PRUNED).exists():
        return
    model = pipeline.fresh_model().to(pipeline.device)
    small = ot.prune(model, pruned_alike(model, pipeline.example(), record))
    found = totals(ot.cost(small, pipeline.example()))
    if found != record.results["cost_after"]:
        raise TrainingError(
            f"{record.place}: what it kept does not say which network it was pruned to, which cost "
            f"{record.results['cost_after']}, not {found}: run it again in a folder of its own, otprune run and scratch"
        )
    pipeline.note(**record.results)
    ot.save(small, pipeline.folder / PRUNED)


def pruned_alike(model: nn.Module, example: Any, record: Record, round_to: int | None = None) -> PruningPlan:
    """The plan that prunes a freshly built model, whose γ become one, little or zero, as the record's was pruned.

    With `round_to`, channels are rounded up to multiples of another number than the record's were.
    """
    layers = record.results["layers"]
    for layer in layers:
        gamma = model.get_submodule(layer["name"]).get_parameter("weight")
        gamma.data.copy_(alike(layer, record.gammas.get(layer["name"])))
    bounds = bounds_for(record.experiment, model, example, record.results)
    if round_to is not None:
        bounds["round_to"] = round_to
    return ot.plan(model, example, _rule(record.experiment, layers), **bounds)


def alike(layer: Mapping[str, Any], gamma: Sequence[float] | None) -> torch.Tensor:
    """One for the important channels of a layer, next to nothing for others, by which they are told apart.

    Which they are is told by γ, if at all. Others keep their order: the largest of them stay where more must stay.

    Where none is important and some were kept all the same, which rules do that cut across layers, little is left of
    them: zeros alone would be the end of a branch, or of everything.

    >>> alike({"channels": 4, "kept": 2, "negligible": 2}, [0.5, 1e-7, -0.4, 0.0])
    tensor([1.0000e+00, 2.0000e-13, 1.0000e+00, 0.0000e+00])
    >>> alike({"channels": 2, "kept": 1, "negligible": 2}, [0.1, 0.2])
    tensor([0.0005, 0.0010])
    >>> alike({"channels": 2, "kept": 1, "negligible": 2}, [0.0, 0.0])
    tensor([0., 0.])
    """
    magnitudes = torch.tensor(gamma or [1.0] * layer["channels"]).abs()
    count = _important(layer)
    if layer["kept"] and not count and magnitudes.any():
        return LITTLE * magnitudes / magnitudes.max()
    found = NEXT_TO_NOTHING * magnitudes / (magnitudes.max() or 1.0) if gamma else torch.zeros(layer["channels"])
    found[magnitudes.argsort(descending=True, stable=True)[:count]] = 1.0
    return found


def _important(layer: Mapping[str, Any]) -> int:
    """How many channels of a layer are important; where it went with its branch, none is."""
    return int(layer["channels"] - layer["negligible"]) if layer["kept"] else 0


def _rule(experiment: Experiment, layers: Sequence[Mapping[str, Any]]) -> Rule:
    """The rule that finds so many negligible, and removes branches if that of the record does."""
    if experiment.pruning.rule == "ot":
        return ot.OptimalThreshold(experiment.pruning.delta)
    channels = sum(layer["channels"] for layer in layers)
    negligible = channels - sum(map(_important, layers))
    return ot.GlobalRatio((negligible + 0.5) / channels)
