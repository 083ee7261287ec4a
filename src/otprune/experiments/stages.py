"""The stages of an experiment: each reads the file of the one before and writes its own; a finished one is skipped.

A stage's file is the last thing it writes: where it is, everything that the stage measured is in the results.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

import otprune as ot
from otprune import models
from otprune.cost import Cost
from otprune.deploy import stopwatch
from otprune.errors import OtpruneError
from otprune.experiments import attribution
from otprune.experiments.bounding import bounds_for
from otprune.experiments.choosing import Chosen, choose
from otprune.experiments.exactness import exactness
from otprune.experiments.folder import FINETUNED, PLAN, PRUNED, RECORD, SCRATCH, SPARSE, found_in, is_made, write_json
from otprune.experiments.meeting_latency import Clock
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.pruned_anew import leave_out_of_another, require_no_files_of_another
from otprune.experiments.remarks import remarks
from otprune.experiments.reporting import Report, Silent
from otprune.experiments.untrained import require_a_teacher, require_nothing_made_of_others, untrained
from otprune.models.init import initialize
from otprune.plan import PruningPlan
from otprune.surgery import apply, plans_of
from otprune.training import distributed
from otprune.training.batch_loss import Teacher
from otprune.training.data.seeds import seeded
from otprune.training.failures import SetAside
from otprune.training.feed import calibration
from otprune.training.loop import SAVE_EVERY_SECONDS, train_together
from otprune.training.run import EpochRecord, Run

TOGETHER = 4  # as many as a GPU gains from
COMPARED_IMAGES = 2


def run(
    pipelines: Sequence[Pipeline],
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    together: int = TOGETHER,
) -> list[dict[str, Any]]:
    """Everything, for several experiments: train, prune, recalibrate, fine-tune; return the records.

    Trainings run side by side, at most `together` of them, and write a checkpoint every `save_every` seconds. What is
    pruned goes on without the weights that it was made of. An experiment that fails is set aside; at the end, when the
    others are done and recorded, its error is raised: as it is where there is one experiment, and in `RunsFailed` where
    there are several. So it is for each stage that trains.
    """
    aside = SetAside(pipelines)
    aside.at_once(lambda others: train(others, report, save_every, together), untrained(pipelines))
    aside.each(partial(prune, report=report))
    aside.at_once(lambda others: finetune(others, report, save_every, together))
    records = [record(pipeline) for pipeline in aside.others()]
    aside.end()
    return records


def train(
    pipelines: Sequence[Pipeline],
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    together: int = TOGETHER,
    begin: Callable[[Pipeline], Run] | None = None,
) -> None:
    """Train with the sparsity penalty; writes sparse.safetensors. `begin` makes the run of another way to train."""

    def begin_checked(pipeline: Pipeline) -> Run:
        run = (begin or _sparsity_run)(pipeline)
        if run.epoch == run.position == 0 and not run.done:
            require_nothing_made_of_others(pipeline.folder, pipeline.experiment)
        return run

    _train_all(replace(_SPARSITY, begin=begin_checked), pipelines, report, save_every, together)


def finetune(
    pipelines: Sequence[Pipeline],
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    together: int = TOGETHER,
) -> None:
    """Fine-tune the pruned models; writes finetuned.safetensors."""
    _train_all(_FINETUNING, pipelines, report, save_every, together)


def scratch(
    pipelines: Sequence[Pipeline],
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    together: int = TOGETHER,
) -> None:
    """Train the pruned architectures from fresh weights, on the paper's budget; writes scratch.safetensors."""
    _train_all(_FROM_SCRATCH, pipelines, report, save_every, together)


def prune(pipeline: Pipeline, report: Report | None = None) -> None:
    """Prune and re-estimate the batch-norm statistics; writes plan.json and pruned.safetensors."""
    pipeline.led(lambda: _prune(pipeline, report or Silent()))


def prune_by(
    plan: PruningPlan,
    pipeline: Pipeline,
    model: nn.Module,
    choosing: Sequence[Mapping[str, Any]] = (),
    latency: Mapping[str, Any] | None = None,
) -> None:
    """Prune a model by a plan of one's own, as the stage does.

    `choosing` is what was tried on the way to the plan, `latency` what was predicted and measured of it, if it was.
    Where the folder has files of a network that another plan made, it is refused.
    """
    require_no_files_of_another(pipeline.folder, plan)
    attribution.note(pipeline.folder, "prune", pipeline.device, anew=True)
    with _timed([pipeline], "prune"):
        small = ot.prune(model, plan)
        exact = exactness(model, small, plan, _some_images(pipeline))
        measured = pipeline.accuracies("pruned", small)
        measured |= pipeline.accuracies("folded", ot.fold_constants(ot.prune(model, plan), model, plan))
        measured |= pipeline.accuracies("recalibrated", _recalibrated(pipeline, small))
    before = totals(ot.cost(pipeline.fresh_model().to(pipeline.device), pipeline.example()))
    after = totals(ot.cost(small, pipeline.example()))
    left_out = leave_out_of_another(pipeline, plan)
    gammas = _scaling_factors(model, plan)
    pipeline.results.pop("latency", None)  # which an earlier pruning may have met
    pruned_before = {"cost_sparse": totals(ot.cost(model, pipeline.example()))} if plans_of(model) else {}
    pipeline.note(
        **measured,
        exactness=exact,
        cost_before=before,
        cost_after=after,
        **pruned_before,
        remarks=[
            *remarks(pipeline.experiment, plan, after["flops"] / before["flops"], gammas, pipeline.in_rounds),
            *left_out,
        ],
        rule=plan.rule,
        choosing=list(choosing),
        layers=[asdict(layer) | {"kept": len(layer.kept)} for layer in plan.layers],
        removed=plan.removed,
        gammas=gammas,
        **({} if latency is None else {"latency": dict(latency)}),
    )
    plan.save(pipeline.folder / PLAN)  # after the results, which what was left out of them must be gone from first
    ot.save(small, pipeline.folder / PRUNED)


def record(pipeline: Pipeline) -> dict[str, Any]:
    """What is kept of an experiment: configuration, results, versions and hardware; writes record.json.

    Where nothing was measured since it was written, it stays. Where stages ran on different hardware, or with different
    versions, it says so of each.
    """
    path = pipeline.folder / RECORD
    experiment = pipeline.experiment.to_dict()
    written = found_in(path)
    if written and (written.get("experiment"), written.get("results")) == (experiment, pipeline.results):
        return written
    measured = {"experiment": experiment, "data": pipeline.feeding, "results": pipeline.results}
    content = {**measured, **attribution.attributed(pipeline.folder, pipeline.device)}
    if distributed.leads():
        write_json(path, content)
    return content


def trained_accuracy(pipeline: Pipeline) -> float:
    """The accuracy of the trained weights on test images, measured where it is not known: of what was copied here.

    tests/test_lost_files.py shows it at work.
    """
    if "accuracy_sparse" not in pipeline.results:
        pipeline.note(**pipeline.accuracies("sparse", pipeline.load(SPARSE)))
    return float(pipeline.results["accuracy_sparse"])


def totals(cost: Cost) -> dict[str, int]:
    """What a model costs in all.

    >>> import torch
    >>> totals(ot.cost(nn.Linear(3, 2), torch.zeros(1, 3)))
    {'parameters': 8, 'macs': 6, 'flops': 10}
    """
    return {"parameters": cost.parameters, "macs": cost.macs, "flops": cost.flops}


def _prune(pipeline: Pipeline, report: Report) -> None:
    if is_made(pipeline.folder, PRUNED):
        return
    trained_accuracy(pipeline)
    model = pipeline.load(SPARSE)
    with _timed([pipeline], "prune"):
        chosen = _chosen(pipeline, model)
    prune_by(chosen.plan, pipeline, model, chosen.steps, chosen.latency)
    report.pruned(pipeline)


@dataclass(frozen=True)
class _Stage:
    """A stage that trains: how its run begins, and what its file, its accuracy and its epochs are called."""

    name: str
    begin: Callable[[Pipeline], Run]
    file: str
    accuracy: str
    epochs: str


def _sparsity_run(pipeline: Pipeline) -> Run:
    return Run(pipeline.first_model(), pipeline.data, pipeline.experiment.training, pipeline.folder / "train")


def _finetuning_run(pipeline: Pipeline) -> Run:
    settings, pruned, teacher = pipeline.experiment.finetuning, pipeline.load(PRUNED), None
    if settings.distill:
        require_a_teacher(pipeline.folder)
        teacher = Teacher(pipeline.load(SPARSE), settings.distill, settings.temperature)
    training = pipeline.experiment.finetune_training()
    return Run(pruned, pipeline.data, training, pipeline.folder / "finetune", teacher)


def _scratch_run(pipeline: Pipeline) -> Run:
    model = drawn_anew(pipeline, pipeline.load(PRUNED))
    before, after = (pipeline.results[f"cost_{when}"]["flops"] for when in ("before", "after"))
    training = pipeline.experiment.scratch_training(before, after)
    return Run(model.to(pipeline.device), pipeline.data, training, pipeline.folder / "scratch")


_SPARSITY = _Stage("train", _sparsity_run, SPARSE, "sparse", "training")
_FINETUNING = _Stage("finetune", _finetuning_run, FINETUNED, "finetuned", "finetuning")
_FROM_SCRATCH = _Stage("scratch", _scratch_run, SCRATCH, "scratch", "scratch")


def _train_all(
    stage: _Stage, pipelines: Sequence[Pipeline], report: Report | None, save_every: float, together: int
) -> None:
    aside, train_some = SetAside(pipelines), partial(_train_side_by_side, stage, report or Silent(), save_every)
    waiting: list[Pipeline] = []

    def look(pipeline: Pipeline) -> None:
        if not distributed.led(partial(is_made, pipeline.folder, stage.file)):
            waiting.append(pipeline)

    aside.each(look)
    for start in range(0, len(waiting), together):
        aside.at_once(train_some, waiting[start : start + together])
    aside.end()


def _train_side_by_side(stage: _Stage, report: Report, save_every: float, pipelines: Sequence[Pipeline]) -> None:
    aside = SetAside(pipelines)
    runs: dict[int, Run] = {}

    def begin(pipeline: Pipeline) -> None:
        run = runs[id(pipeline)] = stage.begin(pipeline)
        attribution.note(pipeline.folder, stage.name, pipeline.device, anew=run.epoch == run.position == 0)

    aside.each(begin)
    aside.errors += _trained(stage, report, save_every, [(one, runs[id(one)]) for one in aside.others()])
    aside.each(lambda pipeline: _finish(stage, pipeline, runs[id(pipeline)]))
    aside.end()


def _trained(
    stage: _Stage, report: Report, save_every: float, begun: Sequence[tuple[Pipeline, Run]]
) -> list[tuple[Pipeline, OtpruneError]]:
    """Train to the end; return the pipelines whose runs failed, and of what."""
    owners = {id(run): pipeline for pipeline, run in begun}

    def moved(run: Run) -> None:
        report.moved(owners[id(run)], stage.name, run)

    def train_them(runs: Sequence[Run]) -> None:
        with _timed(list(owners.values()), stage.name) as note_time:

            def epoch_ended(run: Run, epoch: EpochRecord) -> None:
                note_time(save_every)
                _measure(stage, owners[id(run)], run, epoch)
                report.epoch_ended(owners[id(run)], stage.name, run, epoch)

            train_together(runs, epoch_ended, save_every, moved)

    aside = SetAside([run for _, run in begun])
    aside.at_once(train_them)
    return [(owners[id(run)], error) for run, error in aside.errors]


def _finish(stage: _Stage, pipeline: Pipeline, finished: Run) -> None:
    def finish() -> None:
        epochs = [asdict(epoch) for epoch in finished.history]
        pipeline.note(**pipeline.accuracies(stage.accuracy, finished.model), **{stage.epochs: epochs})
        ot.save(finished.model, pipeline.folder / stage.file)

    pipeline.gather_unreadable()
    pipeline.led(finish)


def _measure(stage: _Stage, pipeline: Pipeline, run: Run, epoch: EpochRecord) -> None:
    if stage is _FINETUNING and epoch.epoch in pipeline.experiment.finetuning.report_after:
        name = f"{stage.accuracy}_{epoch.epoch}"
        pipeline.led(lambda: pipeline.note(**pipeline.accuracies(name, run.model)))


def _chosen(pipeline: Pipeline, model: nn.Module) -> Chosen:
    """The plan, and what was tried on the way to it where it had to be chosen."""
    pruning, example = pipeline.experiment.pruning, pipeline.example()
    rule, bounds = pruning.thresholds(), bounds_for(pipeline.experiment, model, example)
    if pruning.target is None:
        return Chosen(ot.plan(model, example, rule, **bounds), [])
    judged = None if pipeline.held_out is None else pipeline.held_out_accuracy
    repaired, clock = partial(_recalibrated, pipeline), _clock(pipeline) if pruning.latency else None
    return choose(model, example, rule, pruning.target, judged, repaired, **bounds, clock=clock)


def _clock(pipeline: Pipeline) -> Clock:
    pruning = pipeline.experiment.pruning
    file = pipeline.folder / stopwatch.FILE
    return stopwatch.Stopwatch(pipeline.example().cpu(), pruning.latency_runtime, pruning.latency_threads, file)


def _scaling_factors(model: nn.Module, plan: PruningPlan) -> dict[str, list[float]]:
    """What the thresholds were found in, layer by layer, to six digits, so that next to none look equal."""
    gammas = {layer.name: model.get_submodule(layer.name).get_parameter("weight") for layer in plan.layers}
    return {name: [float(f"{value:.6g}") for value in gamma.tolist()] for name, gamma in gammas.items()}


def _recalibrated(pipeline: Pipeline, small: nn.Module) -> nn.Module:
    images = pipeline.experiment.pruning.calibration_images
    return ot.recalibrate(small, calibration(pipeline.data, pipeline.experiment.training, images))


def _some_images(pipeline: Pipeline) -> Tensor:
    return next(iter(calibration(pipeline.data, pipeline.experiment.training, COMPARED_IMAGES)))[:COMPARED_IMAGES]


def drawn_anew(pipeline: Pipeline, pruned: nn.Module) -> nn.Module:
    """The architecture of a pruned model with the weights that a fresh one starts with."""
    small = pipeline.fresh_model()
    for plan in plans_of(pruned):
        small = apply(small, plan)
    if pipeline.experiment.model in models.names():  # their weights start out by the width of the layers
        with seeded(pipeline.experiment.training.seed):
            initialize(small)
    return small


@contextmanager
def _timed(pipelines: Sequence[Pipeline], stage: str) -> Iterator[Callable[[float], None]]:
    """Add what the stage took, be it to the end or until it was broken off.

    A kill leaves no time for that, so what is yielded notes the time so far, if it is so many seconds since the last.
    """
    last = time.perf_counter()

    def note(every: float) -> None:
        nonlocal last
        spent = time.perf_counter() - last
        if spent < every:
            return
        last += spent
        for pipeline in pipelines:
            before = pipeline.results.get("seconds", {})
            now = {stage: before.get(stage, 0.0) + spent, f"{stage}_side_by_side": len(pipelines)}
            pipeline.note(seconds=before | now)

    try:
        yield note
    except BaseException:
        with suppress(OSError):  # a disk that is full, say: what broke the stage off is what has to be told
            note(0)
        raise
    note(0)
