"""Who is told how a training goes, from step to step and from epoch to epoch."""

from typing import TYPE_CHECKING, Protocol

from otprune.training.run import EpochRecord, Run

if TYPE_CHECKING:
    from otprune.experiments.pipeline import Pipeline


class Report(Protocol):
    """A screen, a log, a TensorBoard: whatever wants to know; `stage` is "train", "finetune" or "scratch"."""

    def moved(self, pipeline: "Pipeline", stage: str, run: Run) -> None:
        """The run has made some steps since; told at most once a second."""
        ...

    def epoch_ended(self, pipeline: "Pipeline", stage: str, run: Run, epoch: EpochRecord) -> None:
        """The run has ended an epoch."""
        ...

    def pruned(self, pipeline: "Pipeline") -> None:
        """The model is pruned and recalibrated; what came of it is in the results."""
        ...


class Silent:
    """Tells nobody.

    >>> reporter: Report = Silent()
    """

    def moved(self, pipeline: "Pipeline", stage: str, run: Run) -> None:
        """Say nothing."""

    def epoch_ended(self, pipeline: "Pipeline", stage: str, run: Run, epoch: EpochRecord) -> None:
        """Say nothing."""

    def pruned(self, pipeline: "Pipeline") -> None:
        """Say nothing."""


class Several:
    """Tells several, one after the other.

    >>> reporter: Report = Several(Silent(), Silent())
    """

    def __init__(self, *reports: Report) -> None:
        self._reports = reports

    def moved(self, pipeline: "Pipeline", stage: str, run: Run) -> None:
        """Pass it on."""
        for report in self._reports:
            report.moved(pipeline, stage, run)

    def epoch_ended(self, pipeline: "Pipeline", stage: str, run: Run, epoch: EpochRecord) -> None:
        """Pass it on."""
        for report in self._reports:
            report.epoch_ended(pipeline, stage, run, epoch)

    def pruned(self, pipeline: "Pipeline") -> None:
        """Pass it on."""
        for report in self._reports:
            report.pruned(pipeline)
