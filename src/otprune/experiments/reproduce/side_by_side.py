"""Make the records that are missing in several processes: where one waits for a compiler, the others use the GPU."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from otprune.errors import OtpruneError
from otprune.experiments.board import board
from otprune.experiments.crew.crew import Task, work_off
from otprune.experiments.crew.member import Freed, Tell
from otprune.experiments.news import Listener, News, Said
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Several
from otprune.experiments.reproduce.jobs import Job
from otprune.experiments.reproduce.needed import Needed
from otprune.experiments.reproduce.rows import printed
from otprune.experiments.reproduce.running import run_missing
from otprune.experiments.reproduce.trainings import Failures, goes_on_by_itself, trained_together, with_weights
from otprune.experiments.reproduce.watching import Watching
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.telling import RECORDED, Telling
from otprune.training.failures import SetAside


@dataclass(frozen=True)
class Bench:
    """Where a process makes its records, and how: what of a workshop can be sent there; `threads` are its own.

    >>> Bench(Path("runs"), Path("results"), torch.device("cpu"), together=4, scratch=True, threads=1).scratch
    True
    """

    runs: Path
    results: Path
    device: torch.device
    together: int
    scratch: bool
    threads: int


def fetch(asked: Sequence[Job], workshop: Workshop) -> None:
    """Open the data of all jobs for once, so that what has to be downloaded is, before several want it.

    What cannot be had is told by the jobs that want it, and costs the others nothing.

    >>> fetch([], Workshop(Path("runs"), Path("results"), torch.device("cpu")))
    """
    for data in {needed.experiment.data for job in asked for needed in [*job.needs, *job.sharing]}:
        with suppress(OtpruneError):
            workshop.data(data)


def run_missing_in(processes: int, asked: Sequence[Job], workshop: Workshop, scratch: bool, listener: Listener) -> None:
    """Run all jobs, so many processes at a time; each record is kept as it comes.

    >>> run_missing_in(2, [], Workshop(Path("runs"), Path("results"), torch.device("cpu")), True, listener=None)
    """
    threads = max(1, torch.get_num_threads() // max(1, min(processes, len(asked))))
    bench = Bench(workshop.runs, workshop.results, workshop.device, workshop.together, scratch, threads)
    tasks = [Task(job.name, partial(perform, job, bench), job.after) for job in asked]
    work_off(tasks, processes, listener, workshop.runs)


def perform(job: Job, bench: Bench, tell: Tell) -> None:
    """Do a job in this process, and tell of it.

    >>> threads = torch.get_num_threads()
    >>> perform(Job("a"), Bench(Path("runs"), Path("results"), torch.device("cpu"), 4, True, threads), tell=print)
    """
    torch.set_num_threads(bench.threads)

    def tell_of_it(news: News) -> None:
        tell(replace(news, run=job.name))

    def say(text: str) -> None:
        tell_of_it(Said(job.name, RECORDED, [text]))

    def called(pipeline: Pipeline) -> str:
        return pipeline.folder.relative_to(bench.runs).as_posix()

    def unheard(_: str) -> None:
        """That nothing can be written for TensorBoard is no news of a job, and every job would say so."""

    with board(unheard) as events:
        report = Several(events, Telling(tell_of_it, called), Watching(bench.runs, printed()))
        workshop = Workshop(bench.runs, bench.results, bench.device, report, bench.together, say=say)
        aside: Failures = SetAside([*job.sharing, *job.needs])
        trained, needs = trained_together([job.sharing], workshop, aside), job.needs

        def hand_out(needed: Needed) -> None:
            with_weights(needed, trained, workshop)
            tell(Freed(frozenset({needed.place})))

        if aside.errors:  # it would fail once more
            needs = [needed for needed in needs if goes_on_by_itself(needed, workshop)]
        else:
            aside.each(hand_out, job.sharing)
        aside.each(lambda asked: run_missing(asked, workshop, bench.scratch), [needs])
        aside.end()
