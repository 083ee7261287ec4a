"""A run on a node: fetched from the store, gone on with, and sent back as it gets on."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from otprune.errors import OtpruneError
from otprune.experiments import stages
from otprune.experiments.board import board
from otprune.experiments.cluster.copies import place_for_a_copy
from otprune.experiments.cluster.failing import Failure, failure
from otprune.experiments.cluster.mirror import Mirror
from otprune.experiments.cluster.store import Begun, Files
from otprune.experiments.experiment import Experiment
from otprune.experiments.news import News
from otprune.experiments.pipeline import Pipeline, open_pipelines
from otprune.experiments.reporting import Report, Several, Silent
from otprune.experiments.telling import Telling
from otprune.experiments.untrained import untrained
from otprune.training.data.stream import at_most_cores
from otprune.training.determinism import determinism
from otprune.training.loop import SAVE_EVERY_SECONDS, chosen_device
from otprune.training.run import EpochRecord, Run


class Stopped(Exception):
    """A node was told to stop: what was done is saved, and the run can be gone on with on another."""


class Access(Protocol):
    """The store, as a task sees it."""

    def begin(self, run: str, where: str, known: Collection[str] = ()) -> Begun:
        """Begin a run."""
        ...

    def put(self, run: str, attempt: int, changed: Files, gone: Sequence[str]) -> bool:
        """Send files."""
        ...

    def tell(self, attempt: int, news: News) -> None:
        """Send news."""
        ...


@dataclass(frozen=True)
class Manner:
    """How the runs of a sweep are done on nodes; `here` is the folder that relative paths start from.

    `cpus` are those of a node that a run may use; None is all of them.

    >>> Manner().device
    'auto'
    """

    device: str = "auto"
    deterministic: bool = False
    save_every: float = SAVE_EVERY_SECONDS
    here: Path = Path()
    cpus: float | None = None


@dataclass(frozen=True)
class Assignment:
    """A run for some node; `folder` is its place in the store, `suspects` the nodes on which runs had failed by then.

    >>> Assignment(Path("runs/a"), Experiment("digits_net", "digits")).run
    'a'
    """

    folder: Path
    experiment: Experiment
    manner: Manner = Manner()
    suspects: frozenset[str] = frozenset()

    @property
    def run(self) -> str:
        """Its name."""
        return self.folder.name


def perform(assigned: Assignment, store: Access, where: str) -> Failure | None:
    """Do a run from wherever the store has it to its end; return what went wrong with it, where something did.

    >>> import tempfile
    >>> from otprune.experiments.cluster.store import Store
    >>> from otprune.experiments.experiment import Finetuning
    >>> from otprune.training.run import Training
    >>> untrained = Experiment("digits_net", "digits", training=Training(epochs=0), finetuning=Finetuning(epochs=0))
    >>> folder = Path(tempfile.mkdtemp(), "a")
    >>> perform(Assignment(folder, untrained), Store(folder.parent, ["a"]), "this machine")
    >>> (folder / "record.json").exists()
    True
    """
    begun = store.begin(assigned.run, where, assigned.suspects)
    copy = assigned.folder
    try:
        with place_for_a_copy() as place:
            copy = place / assigned.run
            mirror = Mirror(copy, partial(store.put, assigned.run, begun.attempt))
            mirror.fetch(begun.files)
            _saved_work(assigned, mirror, partial(store.tell, begun.attempt))
    except (OtpruneError, OSError) as error:
        return failure(error, where, assigned.folder, copy)
    return None


def _saved_work(assigned: Assignment, mirror: Mirror, tell: Callable[[News], None]) -> None:
    """However it ends, the store has what was saved."""
    try:
        _work(assigned, mirror, tell)
    except KeyboardInterrupt as interrupted:
        mirror.send()
        raise Stopped(f"{assigned.folder}: stopped and saved") from interrupted
    except (OtpruneError, OSError):
        with suppress(OtpruneError, OSError):  # of a disk that is full, say, there is word already
            mirror.send()
        raise


def _work(assigned: Assignment, mirror: Mirror, tell: Callable[[News], None]) -> None:
    manner = assigned.manner
    with (
        _inside(manner.here),
        at_most_cores(manner.cpus),
        determinism(manner.deterministic),
        board(lambda _: None) as events,
    ):
        [pipeline] = open_pipelines({mirror.folder: assigned.experiment}, chosen_device(manner.device))
        for stage in _stages(pipeline, Several(events, _Sending(mirror), Telling(tell)), manner.save_every):
            stage()
            mirror.send()


def _stages(pipeline: Pipeline, report: Report, save_every: float) -> tuple[Callable[[], object], ...]:
    return (
        partial(stages.train, untrained([pipeline]), report, save_every),
        partial(stages.prune, pipeline, report),
        partial(stages.finetune, [pipeline], report, save_every),
        partial(stages.record, pipeline),
    )


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Relative paths of data and of models mean what they mean to who asked, where the node has that folder at all."""
    before = Path.cwd()
    if folder.is_dir():
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class _Sending(Silent):
    """Sends what is saved as soon as it is."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def moved(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """There may be a checkpoint."""
        self._mirror.send_saved()

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """There may be one, too."""
        self._mirror.send_saved()
