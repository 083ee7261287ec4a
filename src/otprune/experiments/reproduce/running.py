"""Make the records that are missing: one training for all that is pruned from it, several of them side by side."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import otprune as ot
from otprune.experiments import stages
from otprune.experiments.attribution import SCRATCH, noted
from otprune.experiments.contents import ACCURACY, Results, well_formed
from otprune.experiments.folder import PRUNED, RESULTS, SPARSE, read_json
from otprune.experiments.iterate import ROUNDS, Restart, Rounds, iterate_together
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.pruned_anew import only
from otprune.experiments.reproduce.needed import Kind, Needed, once_each
from otprune.experiments.reproduce.records import SCRATCH_LACKS, Record, Records
from otprune.experiments.reproduce.restored import restore
from otprune.experiments.reproduce.trainings import (
    Failures,
    goes_on_by_itself,
    trained_by_ista,
    trained_together,
    with_weights,
)
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.run_facts import as_far_as_known
from otprune.experiments.thresholds import FOLDER as CHECKS
from otprune.experiments.thresholds import verify_thresholds
from otprune.provenance import provenance

T = TypeVar("T")


def run_missing(needs: Sequence[Needed], workshop: Workshop, scratch: bool = True) -> None:
    """Run whatever has no record yet, then train from scratch what lacks that; each record is kept as it comes.

    What fails is set aside; at the end, when the others are done and recorded, its error is raised.

    >>> import torch
    >>> from pathlib import Path
    >>> run_missing([], Workshop(Path("runs"), Path("results"), torch.device("cpu")))
    """
    aside, records = Failures(needs), Records(workshop.results)
    missing = [of_a_free_seed(needed, records) for needed in records.lacking(needs, scratch=False)]
    groups: dict[str, list[Needed]] = {}
    for needed in once_each(needed for needed in missing if needed.kind is not Kind.ISTA):
        groups.setdefault(needed.trained_at, []).append(needed)
    for chunk in _chunks(list(groups.values()), workshop.together):
        _run(chunk, workshop, aside)
    _run_ista([needed for needed in missing if needed.kind is Kind.ISTA], workshop, aside)
    if scratch:
        _train_from_scratch(needs, workshop, aside)
    aside.end()


def of_a_free_seed(needed: Needed, records: Records) -> Needed:
    """Where a record lacks γ it stays as it is, and another seed is run; what else is in its place is refused.

    >>> from pathlib import Path
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


def _run(groups: Sequence[Sequence[Needed]], workshop: Workshop, aside: Failures) -> None:
    """Train side by side, then everything that is made of each of the trained models, or of what was."""
    trained = trained_together(groups, workshop, aside)
    needs = _that_go_on((needed for group in groups for needed in group), trained, workshop)
    of_kind = {kind: [needed for needed in needs if needed.kind is kind] for kind in Kind}
    aside.each(lambda needed: _keep_baseline(needed, trained[needed.trained_at], workshop), of_kind[Kind.BASELINE])
    _prune_and_finetune(of_kind[Kind.PRUNED], trained, workshop, aside)
    aside.each(lambda needed: _shift(needed, trained[needed.trained_at], workshop), of_kind[Kind.SHIFTED])
    _prune_in_rounds(of_kind[Kind.ROUNDS], trained, workshop, aside)


def _run_ista(needs: Sequence[Needed], workshop: Workshop, aside: Failures) -> None:
    """One warm-up for all, then each with a ρ of its own."""
    trained = trained_by_ista([needed for needed in needs if not goes_on_by_itself(needed, workshop)], workshop, aside)
    _prune_and_finetune(_that_go_on(needs, trained, workshop), trained, workshop, aside)


def _that_go_on(needs: Iterable[Needed], trained: Mapping[str, Pipeline], workshop: Workshop) -> list[Needed]:
    return [needed for needed in needs if needed.trained_at in trained or goes_on_by_itself(needed, workshop)]


def _keep_baseline(needed: Needed, trained: Pipeline, workshop: Workshop) -> None:
    stages.trained_accuracy(trained)
    trained.note(cost_before=stages.totals(ot.cost(trained.load(SPARSE), trained.example())))
    workshop.keep(needed.place, stages.record(trained))


def _prune_and_finetune(
    needs: Sequence[Needed], trained: Mapping[str, Pipeline], workshop: Workshop, aside: Failures
) -> None:
    for chunk in _chunks(needs, workshop.together):
        _prune_and_finetune_together(chunk, trained, workshop, aside)


def _prune_and_finetune_together(
    needs: Sequence[Needed], trained: Mapping[str, Pipeline], workshop: Workshop, aside: Failures
) -> None:
    opened: list[tuple[Needed, Pipeline]] = []
    aside.each(lambda needed: opened.append((needed, with_weights(needed, trained, workshop))), needs)
    aside.each(stages.prune, [pipeline for _, pipeline in opened])
    tune = partial(stages.finetune, report=workshop.report, together=workshop.together)
    aside.at_once(tune, [pipeline for needed, pipeline in opened if needed.finetuned])
    _keep_of_others(opened, stages.record, workshop, aside)


def _keep_of_others(
    made: Sequence[tuple[Needed, Pipeline]],
    record: Callable[[Pipeline], Mapping[str, Any]],
    workshop: Workshop,
    aside: Failures,
) -> None:
    """Keep the records of those that have not failed."""
    done = [(needed, pipeline) for needed, pipeline in made if aside.others([pipeline])]
    aside.each(lambda one: workshop.keep(one[0].place, record(one[1])), done)


def _shift(needed: Needed, trained: Pipeline, workshop: Workshop) -> None:
    record = verify_thresholds(trained, report=workshop.report, together=workshop.together)
    check = trained.folder / CHECKS / record["shifts"][0]["folder"]
    gammas = well_formed(Results, read_json(check / RESULTS), check / RESULTS).get("gammas", {})
    workshop.keep(needed.place, {**record, "gammas": gammas, "accuracy_sparse": stages.trained_accuracy(trained)})


def _prune_in_rounds(
    needs: Sequence[Needed], trained: Mapping[str, Pipeline], workshop: Workshop, aside: Failures
) -> None:
    asked: dict[str, Rounds] = {}
    aside.each(lambda needed: asked.update({needed.place: _rounds(needed, trained, workshop)}), needs)
    go_through = partial(iterate_together, report=workshop.report, together=workshop.together)
    try:
        aside.at_once(go_through, list(asked.values()))
    finally:
        for place, one in asked.items():
            if one.is_over(ROUNDS):
                workshop.keep(place, one.record)  # also where others were broken off


def _rounds(needed: Needed, trained: Mapping[str, Pipeline], workshop: Workshop) -> Rounds:
    first, restart = with_weights(needed, trained, workshop), needed.restart or Restart.FINETUNED
    return Rounds(needed.experiment, workshop.runs / needed.place, first.source, workshop.device, restart)


def _train_from_scratch(needs: Sequence[Needed], workshop: Workshop, aside: Failures) -> None:
    records = Records(workshop.results)
    waiting = [needed for needed in needs if records.lacks(needed) == SCRATCH_LACKS]
    lacking = {needed: record for needed in waiting if (record := records.find(needed))}
    for chunk in _chunks(list(lacking), workshop.together):
        _train_from_scratch_together({needed: lacking[needed] for needed in chunk}, workshop, aside)


def _train_from_scratch_together(lacking: Mapping[Needed, Record], workshop: Workshop, aside: Failures) -> None:
    opened: list[tuple[Needed, Pipeline]] = []
    aside.each(lambda needed: opened.append((needed, _pruned(needed, lacking[needed], workshop))), list(lacking))
    train = partial(stages.scratch, report=workshop.report, together=workshop.together)
    aside.at_once(train, [pipeline for _, pipeline in opened])
    for needed, pipeline in opened:
        _keep_of_others([(needed, pipeline)], partial(_with_scratch, lacking[needed]), workshop, aside)


def _pruned(needed: Needed, record: Record, workshop: Workshop) -> Pipeline:
    """The run of the record with its pruned model, or, where that is not here, a network of the same architecture.

    In the folder of the run there may be another one, of the same settings.
    """
    folder = workshop.runs / needed.place
    if (folder / PRUNED).exists() and _is_of(record, as_far_as_known(folder)):
        return workshop.pipeline(needed.place, needed.experiment)
    pipeline = workshop.pipeline(f"{needed.place}-from-record", needed.experiment)
    restore(pipeline, record)
    return pipeline


def _is_of(record: Record, results: Mapping[str, Any]) -> bool:
    """Whether these are results of the very run that was recorded: of what both tell, all is the same."""
    told = {name for name in results.keys() & record.results.keys() if name == "layers" or name.startswith(ACCURACY)}
    return "layers" in told and all(results[name] == record.results[name] for name in told)


def _with_scratch(record: Record, pipeline: Pipeline) -> dict[str, Any]:
    """The record as it was, and what was measured since, with the versions and hardware of that; the run's has all."""
    stages.record(pipeline)
    ran_on = noted(pipeline.folder).get("scratch", [provenance(pipeline.device)])
    results = {**record.results, **(since := only(pipeline.results, "scratch"))}
    for name in since.keys() & record.results.keys():
        if isinstance(since[name], dict):
            results[name] = {**record.results[name], **since[name]}
    return {**record.content, "results": results, SCRATCH: ran_on[-1]}


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
