"""Iterative pruning: train with sparsity, prune and train on, round after round, each from the last one's result."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

import otprune as ot
from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.attribution import attribution
from otprune.experiments.contents import Record, well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import CONFIGURATION, FINETUNED, PRUNED, RECORD, read_json, write_json
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.files import remove_leftovers
from otprune.training.data import AnyDataset
from otprune.training.loop import SAVE_EVERY_SECONDS

ROUNDS = 5
SLIMMING_LAYER_RATIO = 0.5
FRESH = "fresh.safetensors"


class Restart(StrEnum):
    """What a round starts from: the fine-tuned weights of the last, or fresh ones in its pruned architecture.

    >>> Restart("scratch")
    <Restart.SCRATCH: 'scratch'>
    """

    FINETUNED = "finetuned"
    SCRATCH = "scratch"


def iterate(
    experiment: Experiment,
    folder: Path,
    source: AnyDataset,
    device: torch.device,
    rounds: int = ROUNDS,
    restart: Restart = Restart.FINETUNED,
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
) -> dict[str, Any]:
    """Prune in rounds, each a pipeline in a folder of its own; writes record.json after every one and returns it.

    A round starts from the fine-tuned model of the last, or with `Restart.SCRATCH` from fresh weights in its pruned
    architecture; then it is training from scratch, not fine-tuning, that ends a round. It is over early once a round
    removes nothing. Costs are relative to the model that the first round started with.

    >>> import tempfile
    >>> from otprune.experiments.experiment import Finetuning
    >>> from otprune.experiments.pipeline import open_data
    >>> from otprune.training.run import Training
    >>> untrained = Experiment("digits_net", "digits", training=Training(epochs=0), finetuning=Finetuning(epochs=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     iterate(untrained, Path(folder), open_data("digits"), torch.device("cpu"))["remark"]
    'round 1 removes nothing: no further round was begun'
    """
    restart = Restart(restart)  # "scratch" is equal to Restart.SCRATCH, but not the same
    _require_a_rule_alone(experiment)
    _require_rounds_alone(folder, restart, rounds)
    done: list[Pipeline] = []
    record: dict[str, Any] = {}
    while len(done) < rounds and not record.get("remark"):
        place = folder / f"round-{len(done) + 1}"
        pipeline = Pipeline(experiment, place, source, device, _start(done[-1], restart) if done else None)
        _round(pipeline, restart, report, save_every)
        done.append(pipeline)
        record = _written(folder, experiment, restart, done)
    return record


def with_the_usual_limit(experiment: Experiment) -> Experiment:
    """Network Slimming in rounds takes at most half of a layer at a time, unless another limit is set.

    >>> from otprune.experiments.experiment import Pruning
    >>> with_the_usual_limit(Experiment("vgg14", "cifar10", pruning=Pruning(rule="ns"))).pruning.max_layer_ratio
    0.5
    """
    pruning = experiment.pruning
    if pruning.rule != "ns" or pruning.max_layer_ratio < 1:
        return experiment
    return replace(experiment, pruning=replace(pruning, max_layer_ratio=SLIMMING_LAYER_RATIO))


def _round(pipeline: Pipeline, restart: Restart, report: Report | None, save_every: float) -> None:
    stages.train([pipeline], report, save_every)
    stages.prune(pipeline)
    if not _removes_nothing(pipeline.results):
        end = stages.scratch if restart is Restart.SCRATCH else stages.finetune
        end([pipeline], report, save_every)


def _start(last: Pipeline, restart: Restart) -> Path:
    """The file that the round after this one starts from."""
    if restart is Restart.FINETUNED:
        return last.folder / FINETUNED
    if not (last.folder / FRESH).exists():
        ot.save(stages.drawn_anew(last, last.load(PRUNED)), last.folder / FRESH)
    return last.folder / FRESH


def _removes_nothing(results: Mapping[str, Any]) -> bool:
    return all(layer["kept"] == layer["channels"] for layer in results["layers"])


def _written(folder: Path, experiment: Experiment, restart: Restart, done: Sequence[Pipeline]) -> dict[str, Any]:
    content = {
        "experiment": experiment.to_dict(),
        "restart": restart,
        "rounds": [_summary(number, pipeline, restart) for number, pipeline in enumerate(done, start=1)],
        "remark": _remark(done),
    }
    if len(_found(folder).get("rounds", ())) <= len(done):  # gone through again, rounds that are done stay written
        remove_leftovers(folder)  # no other process writes here: the rounds are held by this one
        write_json(folder / RECORD, content)
    return content


def _found(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    return dict(well_formed(Record, read_json(path), path)) if path.exists() else {}


def _summary(number: int, pipeline: Pipeline, restart: Restart) -> dict[str, Any]:
    """The accuracy that the round is judged by, what is left of the first model, and the round's own record."""
    written, results = stages.record(pipeline), pipeline.results
    before, after = results["cost_before"], results["cost_after"]
    return {
        "round": number,
        "accuracy": results.get(f"accuracy_{restart}"),
        "flops": after["flops"] / before["flops"],
        "parameters": after["parameters"] / before["parameters"],
        "channels": sum(layer["kept"] for layer in results["layers"]),
        "results": results,
        **attribution(written),
    }


def _remark(done: Sequence[Pipeline]) -> str:
    if _removes_nothing(done[-1].results):
        return f"round {len(done)} removes nothing: no further round was begun"
    return ""


def _require_a_rule_alone(experiment: Experiment) -> None:
    target, steered = experiment.pruning.target, experiment.training.target_flops
    asked = f"{target.kind}={target.value}" if target else f"target_flops={steered}" if steered else None
    if asked is not None:
        raise TrainingError(
            f"iterative pruning goes by thresholds, round after round, and cannot meet {asked}: "
            f"leave it out, or use otprune run"
        )


def _require_rounds_alone(folder: Path, restart: Restart, rounds: int) -> None:
    if rounds < 1:
        raise TrainingError(f"there must be at least 1 round, not {rounds}")
    if (folder / CONFIGURATION).exists():
        raise TrainingError(f"{folder}: holds a run of its own. Use another folder for rounds.")
    found = _found(folder).get("restart", restart)
    if found != restart:
        raise TrainingError(
            f"{folder}: belongs to rounds with restart={found}, not {restart}. "
            f"Use another folder, or the same setting to go on with it."
        )
