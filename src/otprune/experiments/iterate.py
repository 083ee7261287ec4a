"""Iterative pruning: train with sparsity, prune and train on, round after round, each from the last one's result."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import torch

import otprune as ot
from otprune.errors import OtpruneError, TrainingError
from otprune.experiments import stages
from otprune.experiments.attribution import attribution
from otprune.experiments.claiming import require_no_run, runs_in, some
from otprune.experiments.contents import Asked, Record, well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import kinds
from otprune.experiments.folder import FINETUNED, FRESH, PRUNED, RECORD, ROUNDS_ASKED, read_json, write_json
from otprune.experiments.passed_over import PassedOver
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.experiments.untrained import untrained
from otprune.files import remove_leftovers
from otprune.training.data import AnyDataset
from otprune.training.failures import RunsFailed, SetAside
from otprune.training.loop import SAVE_EVERY_SECONDS

ROUNDS = 5
SLIMMING_LAYER_RATIO = 0.5


class Restart(StrEnum):
    """What a round starts from: the fine-tuned weights of the last, or fresh ones in its pruned architecture.

    >>> Restart("scratch")
    <Restart.SCRATCH: 'scratch'>
    """

    FINETUNED = "finetuned"
    SCRATCH = "scratch"


@dataclass(eq=False)
class Rounds:
    """One experiment that is pruned in rounds, each a pipeline in a folder of its own, and the rounds behind.

    Its record is written after every round. A round starts from the fine-tuned model of the last, or with
    `Restart.SCRATCH` from fresh weights in its pruned architecture. Then nothing waits for its networks to be trained
    from scratch, which they are in place of fine-tuning, after the last round. Costs are relative to the model that the
    first round started with.

    >>> Rounds(Experiment("vgg14", "cifar10"), Path("rounds"), source=None, device=torch.device("cpu")).goes_on(5)
    True
    """

    experiment: Experiment
    folder: Path
    source: AnyDataset
    device: torch.device
    restart: Restart = Restart.FINETUNED
    done: list[Pipeline] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart = Restart(self.restart)  # "scratch" is equal to Restart.SCRATCH, but not the same
        _require_a_rule_alone(self.experiment)

    def goes_on(self, rounds: int) -> bool:
        """Whether fewer than so many are recorded; it is over early once one removes nothing."""
        return are_missing(self.record, rounds)

    def is_over(self, rounds: int) -> bool:
        """Whether there is no other round, nor anything left to train from scratch, as far as is recorded."""
        return not self.goes_on(rounds) and are_trained(self.record)

    def begin(self, rounds: int) -> None:
        """Open the next round of so many, which is noted for when they are gone on with."""
        place, start = self.folder / f"round-{len(self.done) + 1}", self._start() if self.done else None
        self.done.append(Pipeline(self.experiment, place, self.source, self.device, start, in_rounds=True))
        if _noted(self.folder) != rounds:  # now that the round is held by this process
            write_json(self.folder / ROUNDS_ASKED, Asked(rounds=rounds))

    def end(self) -> None:
        """Write down what the round came to."""
        self.record = _written(self.folder, self.experiment, self.restart, self.done)

    @property
    def last(self) -> list[Pipeline]:
        """The round under way."""
        return self.done[-1:]

    @property
    def to_finetune(self) -> list[Pipeline]:
        """The round under way, where it is fine-tuned and removes something."""
        return [one for one in self.last if self.restart is Restart.FINETUNED and _removes(one.results)]

    @property
    def to_train_from_scratch(self) -> list[Pipeline]:
        """All rounds that are and that remove something."""
        return [one for one in self.done if self.restart is Restart.SCRATCH and _removes(one.results)]

    def _start(self) -> Path:
        """The file that the round after this one starts from."""
        (last,) = self.last
        if self.restart is Restart.FINETUNED:
            return last.folder / FINETUNED
        if not (last.folder / FRESH).exists():
            ot.save(stages.drawn_anew(last, last.load(PRUNED)), last.folder / FRESH)
        return last.folder / FRESH


Which = Callable[[Rounds], Sequence[Pipeline]]
"""Some of the rounds."""


def iterate(
    experiment: Experiment,
    folder: Path,
    source: AnyDataset,
    device: torch.device,
    rounds: int | None = None,
    restart: Restart = Restart.FINETUNED,
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
) -> dict[str, Any]:
    """Prune in rounds, as `Rounds` tells; writes record.json after every one and returns it.

    Without a number of `rounds` there are as many as the folder was last asked for, or else ROUNDS. Where it has more
    than are asked for, all are returned.

    >>> import tempfile
    >>> from otprune.experiments.experiment import Finetuning
    >>> from otprune.experiments.pipeline import open_data
    >>> from otprune.training.run import Training
    >>> untrained = Experiment("digits_net", "digits", training=Training(epochs=0), finetuning=Finetuning(epochs=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     iterate(untrained, Path(folder), open_data("digits"), torch.device("cpu"))["remark"]
    'round 1 removes nothing: no further round was begun'
    """
    asked = Rounds(experiment, folder, source, device, restart)
    iterate_together([asked], rounds if rounds is not None else _noted(folder) or ROUNDS, report, save_every)
    return max(asked.record, _found(folder), key=lambda record: len(record["rounds"]))


def iterate_together(
    asked: Sequence[Rounds],
    rounds: int = ROUNDS,
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    together: int = stages.TOGETHER,
) -> None:
    """The same for several, whose rounds are trained side by side; each comes to what it would alone.

    One that fails is set aside; at the end, when the others are done and recorded, its error is raised.

    >>> iterate_together([])
    """
    aside = SetAside(asked)

    def go(stage: Callable[..., None], which: Which, among: Sequence[Rounds] | None = None) -> None:
        aside.at_once(
            partial(_through, partial(stage, report=report, save_every=save_every, together=together), which), among
        )

    aside.each(lambda one: _require_rounds_alone(one.folder, one.restart, rounds))
    while waiting := [one for one in aside.others() if one.goes_on(rounds)]:
        aside.each(lambda one: one.begin(rounds), waiting)
        go(stages.train, lambda one: untrained(one.last, one.restart is Restart.FINETUNED), waiting)
        aside.each(lambda one: stages.prune(one.done[-1], report), waiting)
        go(stages.finetune, lambda one: one.to_finetune, waiting)
        aside.each(Rounds.end, waiting)
    pruned = [one for one in aside.others() if one.to_train_from_scratch]
    try:
        go(stages.scratch, lambda one: one.to_train_from_scratch, pruned)
    finally:
        for one in pruned:  # also where the training of another was broken off
            one.end()
    aside.end()


def are_missing(record: Mapping[str, Any], rounds: int = ROUNDS) -> bool:
    """Whether a record has fewer than so many rounds and does not say that the last of them removed nothing.

    >>> are_missing({"rounds": [], "remark": ""})
    True
    """
    return len(record.get("rounds", ())) < rounds and not record.get("remark")


def are_trained(record: Mapping[str, Any]) -> bool:
    """Whether every recorded round that removes something was trained after it.

    >>> are_trained({"rounds": [{"accuracy": None, "results": {"layers": [{"channels": 4, "kept": 2}]}}]})
    False
    """
    return all(one["accuracy"] is not None for one in record.get("rounds", ()) if _removes(one["results"]))


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


def passed_over(restart: Restart) -> Iterator[PassedOver]:
    """Settings without an effect on rounds that start so.

    >>> list(passed_over(Restart.FINETUNED))
    []
    """
    if restart is Restart.SCRATCH:
        for name in kinds(Experiment):
            if name.startswith("finetuning."):
                yield PassedOver(name, "to rounds that restart from scratch", "restart", Restart.FINETUNED)


def _through(stage: Callable[[Sequence[Pipeline]], None], which: Which, asked: Sequence[Rounds]) -> None:
    """Let some of their pipelines go through a stage; who failed at it is told by the whole of the rounds."""
    owners = {id(pipeline): one for one in asked for pipeline in which(one)}
    try:
        stage([pipeline for one in asked for pipeline in which(one)])
    except RunsFailed as failed:
        raise RunsFailed([(owners[id(pipeline)], error) for pipeline, error in failed.errors]) from failed
    except OtpruneError as error:  # that of a single pipeline
        if len(owners) != 1:
            raise
        raise RunsFailed([(one, error) for one in owners.values()]) from error


def _removes(results: Mapping[str, Any]) -> bool:
    return any(layer["kept"] < layer["channels"] for layer in results["layers"])


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


def _noted(folder: Path) -> int | None:
    """How many rounds the folder was last asked for."""
    path = folder / ROUNDS_ASKED
    if not path.exists():
        return None
    found = well_formed(Asked, read_json(path), path)["rounds"]
    if found < 1:
        raise TrainingError(f"{path}: it asks for {found} rounds. Delete it, or give --rounds.")
    return found


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
    if not _removes(done[-1].results):
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
    require_no_run(folder, "rounds")
    others = [name for name in runs_in(folder) if not re.fullmatch(r"round-\d+", name)]
    if others:
        raise TrainingError(f"{folder}: holds the runs {some(others)}. Use another folder for rounds.")
    found = _found(folder).get("restart", restart)
    if found != restart:
        raise TrainingError(
            f"{folder}: belongs to rounds with restart={found}, not {restart}. "
            f"Use another folder, or the same setting to go on with it."
        )
