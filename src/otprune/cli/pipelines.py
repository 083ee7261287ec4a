"""Whole pipelines for the verbs: run some side by side on this machine, and show what came of runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console

from otprune.cli.running import console, opened, reports, say
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.experiments.screen import results_table
from otprune.training.failures import RunsFailed

Following = Callable[[Console, Sequence[Pipeline]], AbstractContextManager[Report]]


def in_bars(screen: Console, pipelines: Sequence[Pipeline]) -> AbstractContextManager[Report]:
    """Follow trainings with a bar for each.

    >>> with in_bars(Console(), []) as report:
    ...     stages.train([], report)
    """
    return reports(screen)


def run_all(
    experiments: Mapping[Path, Experiment],
    device: str,
    together: int = stages.TOGETHER,
    following: Following = in_bars,
) -> None:
    """Run experiments in their folders, and show what came of those that did not fail.

    >>> run_all({}, "cpu")
    """
    screen = console()
    pipelines = opened(experiments, device, screen)
    try:
        with following(screen, pipelines) as report:
            stages.run(pipelines, report, together=together)
    except RunsFailed as failed:
        show_pipelines(failed.others(pipelines), screen)
        raise
    show_pipelines(pipelines, screen)


def show_pipelines(pipelines: Sequence[Pipeline], screen: Console) -> None:
    """What came of runs, and what is to be said of them.

    >>> show_pipelines([], Console())
    """
    show({pipeline.folder.name: stages.record(pipeline) for pipeline in pipelines}, screen)


def show(records: Mapping[str, Mapping[str, Any]], screen: Console) -> None:
    """The same for records, by the names of their runs.

    >>> show({}, Console())
    """
    if not records:
        return
    screen.print(results_table(list(records.values())))
    for name, record in records.items():
        whose = f"{name}: " if len(records) > 1 else ""
        for remark in record["results"].get("remarks", ()):
            say(screen, f"{whose}{remark}")
