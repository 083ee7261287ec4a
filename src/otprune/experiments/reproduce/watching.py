"""The test accuracy after single epochs: what is reported by those who keep the best of them.

Here the last checkpoint is what counts. The paper does not say which it reports, and the training program that its
authors published keeps the epoch that does best on the test images beside the last one. How much that choice adds can
be told only where every epoch that might have been chosen was measured.
"""

from collections.abc import Mapping
from pathlib import Path

from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Silent
from otprune.training.run import EpochRecord, Run

BY_EPOCH = "test_by_epoch"


class Watching(Silent):
    """Measures each epoch at the rate that a stage ends with, of the runs and in the stage that are `watched`.

    The accuracies are noted in the run's results. Nothing is chosen by them.

    >>> Watching(Path("runs"), {"cifar10/vgg14/lam0-seed0": "train"}).is_watched(Path("elsewhere"), "train")
    False
    """

    def __init__(self, runs: Path, watched: Mapping[str, str]) -> None:
        self._watched = {runs / place: stage for place, stage in watched.items()}

    def is_watched(self, folder: Path, stage: str) -> bool:
        """Whether the epochs of this stage are measured."""
        return self._watched.get(folder) == stage

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """Measure, where the best epoch might be looked for."""
        epochs = run.training.epochs
        if self.is_watched(pipeline.folder, stage) and epoch.rate == run.schedule(epochs - 1, epochs):
            pipeline.led(lambda: _note(pipeline, stage, run, epoch))


def _note(pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
    before = pipeline.results.get(BY_EPOCH, {})
    measured = {**before.get(stage, {}), str(epoch.epoch): pipeline.test_accuracy(run.model)}
    pipeline.note(**{BY_EPOCH: {**before, stage: measured}})
