"""Make the records that are missing: one training for all that is pruned from it, several of them side by side."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch

import otprune as ot
from otprune.experiments import paper, stages
from otprune.experiments.attribution import SCRATCH, hand_on, noted
from otprune.experiments.contents import Results, well_formed
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.folder import PRUNED, RESULTS, SPARSE, read_json, write_json
from otprune.experiments.iterate import ROUNDS, Restart, Rounds, iterate_together
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.reporting import Report
from otprune.experiments.reproduce.needed import Kind, Needed
from otprune.experiments.reproduce.records import SCRATCH_LACKS, Record, Records
from otprune.experiments.reproduce.restored import restore
from otprune.experiments.thresholds import FOLDER as CHECKS
from otprune.experiments.thresholds import verify_thresholds
from otprune.experiments.untrained import goes_on_from_pruned
from otprune.files import write_atomically
from otprune.provenance import provenance
from otprune.training.data import AnyDataset, Progress
from otprune.training.ista import IstaRun
from otprune.training.run import Run

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass
class Workshop:
    """Where runs are made and records go; the data of all of them is opened once.

    >>> Workshop(Path("runs"), Path("results"), torch.device("cpu")).together
    4
    """

    runs: Path
    results: Path
    device: torch.device
    report: Report | None = None
    together: int = stages.TOGETHER
    downloading: Progress | None = None
    say: Say = print
    opened: dict[str, AnyDataset] = field(default_factory=dict)

    def pipeline(self, place: str, experiment: Experiment, start: Path | None = None) -> Pipeline:
        """The pipeline of an experiment in its folder."""
        return Pipeline(experiment, self.runs / place, self.data(experiment.data), self.device, start)

    def data(self, name: str) -> AnyDataset:
        """The data of that name."""
        if name not in self.opened:
            self.opened[name] = open_data(name, self.downloading)
        return self.opened[name]

    def keep(self, place: str, record: Mapping[str, Any]) -> None:
        """Put a finished record where records are kept."""
        path = self.results / f"{place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
        self.say(f"recorded {path}")


def run_missing(needs: Sequence[Needed], workshop: Workshop, scratch: bool = True) -> None:
    """Run whatever has no record yet, then train from scratch what lacks that; each record is kept as it comes.

    >>> run_missing([], Workshop(Path("runs"), Path("results"), torch.device("cpu")))
    """
    records = Records(workshop.results)
    missing = [of_a_free_seed(needed, records) for needed in records.lacking(needs, scratch=False)]
    groups: dict[str, list[Needed]] = {}
    for needed in {needed.place: needed for needed in missing if needed.kind is not Kind.ISTA}.values():
        groups.setdefault(needed.trained_at, []).append(needed)
    for chunk in _chunks(list(groups.values()), workshop.together):
        _run(chunk, workshop)
    _run_ista([needed for needed in missing if needed.kind is Kind.ISTA], workshop)
    if scratch:
        _train_from_scratch(needs, workshop)


def to_train(missing: Iterable[Needed], workshop: Workshop) -> list[str]:
    """Where the trainings lie that what is missing is made of, unless they are done.

    >>> from otprune.experiments.reproduce.needed import shifted
    >>> workshop = Workshop(Path("runs"), Path("results"), torch.device("cpu"))
    >>> to_train([shifted("cifar10", "vgg14", 1e-4)], workshop)
    ['cifar10/vgg14/lam1e-4-seed0']
    """
    places = dict.fromkeys(needed.trained_at for needed in missing if not goes_on_by_itself(needed, workshop))
    return [place for place in places if not (workshop.runs / place / SPARSE).exists()]


def of_a_free_seed(needed: Needed, records: Records) -> Needed:
    """Where a record lacks γ it stays as it is, and another seed is run; what else is in its place is refused.

    >>> from otprune.experiments.reproduce.needed import baseline
    >>> of_a_free_seed(baseline("cifar10", "vgg14"), Records(Path("nowhere"))).place
    'cifar10/vgg14/lam0-seed0'
    """
    if not needed.gammas:
        return needed
    training = needed.experiment.training
    seeds = (replace(training, seed=seed) for seed in count(training.seed))
    asked = (replace(needed, experiment=replace(needed.experiment, training=one)) for one in seeds)
    return next(one for one in asked if records.find(one) is None)


def trained_for(needs: Sequence[Needed], workshop: Workshop) -> dict[str, Pipeline]:
    """The training that these share, by its place, made where it is not there.

    >>> trained_for([], Workshop(Path("runs"), Path("results"), torch.device("cpu")))
    {}
    """
    return _trained([needs] if needs else [], workshop)


def goes_on_by_itself(needed: Needed, workshop: Workshop) -> bool:
    """Whether no training has to be made first: what is pruned needs none, nor does what was given another's weights.

    >>> from otprune.experiments.reproduce.needed import pruned
    >>> workshop = Workshop(Path("runs"), Path("results"), torch.device("cpu"))
    >>> goes_on_by_itself(pruned("cifar10", "vgg14", 1e-4, ratio=0.5), workshop)
    False
    """
    folder = workshop.runs / needed.begins_at
    if needed.kind in (Kind.PRUNED, Kind.ROUNDS) and goes_on_from_pruned(folder, needed.experiment):
        return True
    return needed.begins_at != needed.trained_at and (folder / SPARSE).exists()


def _run(groups: Sequence[Sequence[Needed]], workshop: Workshop) -> None:
    """Train side by side, then everything that is made of each of the trained models."""
    trained = _trained(groups, workshop)
    needs = [needed for group in groups for needed in group]
    for needed in needs:
        if needed.kind is Kind.BASELINE:
            _keep_baseline(needed, trained[needed.trained_at], workshop)
    _prune_and_finetune([needed for needed in needs if needed.kind is Kind.PRUNED], trained, workshop)
    for needed in needs:
        if needed.kind is Kind.SHIFTED:
            _shift(needed, trained[needed.trained_at], workshop)
    _prune_in_rounds([needed for needed in needs if needed.kind is Kind.ROUNDS], trained, workshop)


def _run_ista(needs: Sequence[Needed], workshop: Workshop) -> None:
    """One warm-up for all, then each with a ρ of its own."""
    if not needs:
        return
    first = needs[0].experiment
    warm = workshop.pipeline(warmed_up_at(needs[0]), warm_up(first))
    stages.train([warm], workshop.report, begin=_ista_run)
    trained = {one.place: workshop.pipeline(one.place, one.experiment, warm.folder / SPARSE) for one in needs}
    stages.train(list(trained.values()), workshop.report, together=workshop.together, begin=_ista_run)
    _prune_and_finetune(needs, trained, workshop)


def warmed_up_at(needed: Needed) -> str:
    """Where the warm-up lies that trainings by ISTA share.

    >>> from otprune.experiments.reproduce.needed import by_ista
    >>> warmed_up_at(by_ista(0.01))
    'cifar10/resnet20/ista-warm-up-seed0'
    """
    asked = needed.experiment
    return f"{asked.data}/{asked.model}/ista-warm-up-seed{asked.training.seed}"


def warm_up(experiment: Experiment) -> Experiment:
    """The training that those with larger ρ go on from: so many steps for so many of theirs.

    >>> from otprune.experiments.reproduce.needed import by_ista
    >>> warm_up(by_ista(0.01).experiment).training.lam
    0.001
    """
    asked, training = paper.table("points")["ye2018"], experiment.training
    epochs = round(training.epochs * asked["warm_up_epochs"] / asked["epochs"])
    return replace(experiment, training=replace(training, epochs=epochs, lam=asked["warm_up_rho"]))


def _ista_run(pipeline: Pipeline) -> Run:
    return IstaRun(pipeline.first_model(), pipeline.data, pipeline.experiment.training, pipeline.folder / "train")


def _trained(groups: Sequence[Sequence[Needed]], workshop: Workshop) -> dict[str, Pipeline]:
    """By place, the trainings that groups of records share, but those that all of a group can do without."""
    waiting = [group for group in groups if not all(goes_on_by_itself(needed, workshop) for needed in group)]
    trained = {group[0].trained_at: _training(group[0], workshop) for group in waiting}
    stages.train(list(trained.values()), workshop.report, together=workshop.together)
    return trained


def _training(needed: Needed, workshop: Workshop) -> Pipeline:
    """The run that is trained; where several prunings share it, it is pruned itself by OT as it is."""
    experiment = needed.experiment if needed.recipe else replace(needed.experiment, pruning=Pruning())
    return workshop.pipeline(needed.trained_at, experiment)


def _keep_baseline(needed: Needed, trained: Pipeline, workshop: Workshop) -> None:
    trained.note(cost_before=stages.totals(ot.cost(trained.load(SPARSE), trained.example())))
    workshop.keep(needed.place, stages.record(trained))


def _prune_and_finetune(needs: Sequence[Needed], trained: Mapping[str, Pipeline], workshop: Workshop) -> None:
    for chunk in _chunks(needs, workshop.together):
        pipelines = [_with_weights(needed, trained, workshop) for needed in chunk]
        for pipeline in pipelines:
            stages.prune(pipeline)
        both = list(zip(chunk, pipelines, strict=True))
        tuned = [pipeline for needed, pipeline in both if needed.finetuned]
        stages.finetune(tuned, workshop.report, together=workshop.together)
        for needed, pipeline in both:
            workshop.keep(needed.place, stages.record(pipeline))


def _with_weights(needed: Needed, trained: Mapping[str, Pipeline], workshop: Workshop) -> Pipeline:
    """The run itself where it was trained, or another with the same trained weights."""
    if needed.begins_at == needed.trained_at:
        return trained.get(needed.trained_at) or _training(needed, workshop)
    return with_weights(needed, trained, workshop)


def with_weights(needed: Needed, trained: Mapping[str, Pipeline], workshop: Workshop) -> Pipeline:
    """The run of what shares its training with others: with its weights, it can be gone on with by itself.

    tests/test_side_by_side.py shows it at work.
    """
    pipeline = workshop.pipeline(needed.begins_at, needed.experiment)
    if needed.trained_at in trained:
        _share(trained[needed.trained_at], pipeline)
    return pipeline


def _share(trained: Pipeline, pipeline: Pipeline) -> None:
    """Give a run the trained weights of another, and note whose they are; what is pruned was made of others."""
    if not (pipeline.folder / SPARSE).exists() and not (pipeline.folder / PRUNED).exists():
        pipeline.note(accuracy_sparse=trained.results["accuracy_sparse"], trained_in=trained.folder.name)
        hand_on("train", trained.folder, pipeline.folder)
        write_atomically(pipeline.folder / SPARSE, (trained.folder / SPARSE).read_bytes())


def _shift(needed: Needed, trained: Pipeline, workshop: Workshop) -> None:
    record = verify_thresholds(trained, report=workshop.report, together=workshop.together)
    check = trained.folder / CHECKS / record["shifts"][0]["folder"]
    gammas = well_formed(Results, read_json(check / RESULTS), check / RESULTS).get("gammas", {})
    workshop.keep(needed.place, {**record, "gammas": gammas, "accuracy_sparse": trained.results["accuracy_sparse"]})


def _prune_in_rounds(needs: Sequence[Needed], trained: Mapping[str, Pipeline], workshop: Workshop) -> None:
    """Side by side; one that fails costs the others nothing."""
    asked = {needed.place: _rounds(needed, trained, workshop) for needed in needs}
    try:
        iterate_together(list(asked.values()), report=workshop.report, together=workshop.together)
    finally:
        for place, one in asked.items():
            if one.is_over(ROUNDS):
                workshop.keep(place, one.record)  # also where another failed


def _rounds(needed: Needed, trained: Mapping[str, Pipeline], workshop: Workshop) -> Rounds:
    first, restart = _with_weights(needed, trained, workshop), needed.restart or Restart.FINETUNED
    return Rounds(needed.experiment, workshop.runs / needed.place, first.source, workshop.device, restart)


def _train_from_scratch(needs: Sequence[Needed], workshop: Workshop) -> None:
    records = Records(workshop.results)
    waiting = [needed for needed in needs if records.lacks(needed) == SCRATCH_LACKS]
    lacking = [(needed, record) for needed in waiting if (record := records.find(needed))]
    for chunk in _chunks(lacking, workshop.together):
        pipelines = [_pruned(needed, record, workshop) for needed, record in chunk]
        stages.scratch(pipelines, workshop.report, together=workshop.together)
        for (needed, record), pipeline in zip(chunk, pipelines, strict=True):
            workshop.keep(needed.place, _with_scratch(record, pipeline))


def _pruned(needed: Needed, record: Record, workshop: Workshop) -> Pipeline:
    """The run with its pruned model, or, where only its record is left, with a network of the same architecture."""
    if (workshop.runs / needed.place / PRUNED).exists():
        return workshop.pipeline(needed.place, needed.experiment)
    pipeline = workshop.pipeline(f"{needed.place}-from-record", needed.experiment)
    restore(pipeline, record)
    return pipeline


def _with_scratch(record: Record, pipeline: Pipeline) -> dict[str, Any]:
    """The record as it was, and what was measured since, with the versions and hardware of that."""
    ran_on = noted(pipeline.folder).get("scratch", [provenance(pipeline.device)])
    return {**record.content, "results": pipeline.results, SCRATCH: ran_on[-1]}


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
