"""The trainings that what is needed is made of: which have to be made, by which way, and how others share them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from otprune.experiments import paper, stages
from otprune.experiments.attribution import hand_on
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.folder import PRUNED, SPARSE
from otprune.experiments.iterate import Restart
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reproduce.needed import Kind, Needed
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.untrained import goes_on_from_pruned
from otprune.files import write_atomically
from otprune.training.failures import SetAside
from otprune.training.ista import IstaRun
from otprune.training.run import Run

Failures = SetAside[Any]
"""What went wrong so far, be it with a record that is needed, with a run, or with rounds."""

MADE_OF_PRUNED = (Kind.PRUNED, Kind.ISTA, Kind.ROUNDS)


def to_train(missing: Iterable[Needed], workshop: Workshop) -> list[str]:
    """Where the trainings lie that what is missing is made of, unless they are done.

    >>> import torch
    >>> from pathlib import Path
    >>> from otprune.experiments.reproduce.needed import shifted
    >>> workshop = Workshop(Path("runs"), Path("results"), torch.device("cpu"))
    >>> to_train([shifted("cifar10", "vgg14", 1e-4)], workshop)
    ['cifar10/vgg14/lam1e-4-seed0']
    """
    places = dict.fromkeys(needed.trained_at for needed in missing if not goes_on_by_itself(needed, workshop))
    return [place for place in places if not (workshop.runs / place / SPARSE).exists()]


def goes_on_by_itself(needed: Needed, workshop: Workshop) -> bool:
    """Whether no training has to be made first: what is pruned needs none, nor does what was given another's weights.

    >>> import torch
    >>> from pathlib import Path
    >>> from otprune.experiments.reproduce.needed import pruned
    >>> workshop = Workshop(Path("runs"), Path("results"), torch.device("cpu"))
    >>> goes_on_by_itself(pruned("cifar10", "vgg14", 1e-4, ratio=0.5), workshop)
    False
    """
    folder = workshop.runs / needed.begins_at
    finetuned = needed.finetuned and needed.restart is not Restart.SCRATCH
    if needed.kind in MADE_OF_PRUNED and goes_on_from_pruned(folder, needed.experiment, finetuned):
        return True
    return needed.begins_at != needed.trained_at and (folder / SPARSE).exists()


def trained_together(groups: Sequence[Sequence[Needed]], workshop: Workshop, aside: Failures) -> dict[str, Pipeline]:
    """By place, the trainings that groups of records share, but those that all of a group can do without.

    >>> import torch
    >>> from pathlib import Path
    >>> trained_together([[]], Workshop(Path("runs"), Path("results"), torch.device("cpu")), Failures([]))
    {}
    """
    waiting = [group[0] for group in groups if not all(goes_on_by_itself(needed, workshop) for needed in group)]
    opened = _opened(waiting, lambda needed: _training(needed, workshop), aside)
    return _that_do_well(opened, partial(stages.train, report=workshop.report, together=workshop.together), aside)


def trained_by_ista(needs: Sequence[Needed], workshop: Workshop, aside: Failures) -> dict[str, Pipeline]:
    """The same by ISTA, one warm-up for all that have not gone on from it yet.

    >>> import torch
    >>> from pathlib import Path
    >>> trained_by_ista([], Workshop(Path("runs"), Path("results"), torch.device("cpu")), Failures([]))
    {}
    """
    train = partial(stages.train, report=workshop.report, begin=_ista_run)
    waiting = [one for one in needs if not (workshop.runs / one.place / SPARSE).exists()]
    warm = _that_do_well(_opened(waiting[:1], lambda one: _warming_up(one, workshop), aside), train, aside)
    start = next((pipeline.folder / SPARSE for pipeline in warm.values()), None)
    able = [one for one in needs if start or one not in waiting]
    opened = _opened(able, lambda one: workshop.pipeline(one.place, one.experiment, start), aside)
    return _that_do_well(opened, partial(train, together=workshop.together), aside)


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


def with_weights(needed: Needed, trained: Mapping[str, Pipeline], workshop: Workshop) -> Pipeline:
    """The run itself where it was trained, or another with the same weights, which can be gone on with by itself.

    tests/test_side_by_side.py shows it at work.
    """
    if needed.begins_at == needed.trained_at:
        return trained.get(needed.trained_at) or _training(needed, workshop)
    pipeline = workshop.pipeline(needed.begins_at, needed.experiment)
    if needed.trained_at in trained:
        _share(trained[needed.trained_at], pipeline)
    return pipeline


def _training(needed: Needed, workshop: Workshop) -> Pipeline:
    """The run that is trained; where several prunings share it, it is pruned itself by OT as it is."""
    alone = needed.recipe or needed.kind is Kind.ISTA
    experiment = needed.experiment if alone else replace(needed.experiment, pruning=Pruning())
    return workshop.pipeline(needed.trained_at, experiment)


def _warming_up(needed: Needed, workshop: Workshop) -> Pipeline:
    return workshop.pipeline(warmed_up_at(needed), warm_up(needed.experiment))


def _ista_run(pipeline: Pipeline) -> Run:
    return IstaRun(pipeline.first_model(), pipeline.data, pipeline.experiment.training, pipeline.folder / "train")


def _opened(needs: Sequence[Needed], begin: Callable[[Needed], Pipeline], aside: Failures) -> dict[str, Pipeline]:
    opened: dict[str, Pipeline] = {}
    aside.each(lambda needed: opened.update({needed.trained_at: begin(needed)}), needs)
    return opened


def _that_do_well(
    opened: Mapping[str, Pipeline], train: Callable[[list[Pipeline]], object], aside: Failures
) -> dict[str, Pipeline]:
    """Those of some trainings that come to their end."""
    aside.at_once(train, list(opened.values()))
    return {place: pipeline for place, pipeline in opened.items() if aside.others([pipeline])}


def _share(trained: Pipeline, pipeline: Pipeline) -> None:
    """Give a run the trained weights of another, and note whose they are; what is pruned was made of others."""
    if not (pipeline.folder / SPARSE).exists() and not (pipeline.folder / PRUNED).exists():
        pipeline.note(accuracy_sparse=stages.trained_accuracy(trained), trained_in=trained.folder.name)
        hand_on("train", trained.folder, pipeline.folder)
        write_atomically(pipeline.folder / SPARSE, (trained.folder / SPARSE).read_bytes())
