"""A report that turns what happens to a run into news for another process."""

from collections.abc import Callable

from otprune.experiments.news import News, Said, Stood
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.screen import pruning_lines
from otprune.experiments.standing import Watch
from otprune.training.run import EpochRecord, Run

PRUNED = "pruned"  # stages that news are of beside those that train
RECORDED = "recorded"


class Telling:
    """Tells how each training stands, and at its end what it came to in words; `called` names a run, which else
    is named after its folder.

    >>> from otprune.experiments import stages
    >>> stages.train([], Telling(print))
    """

    def __init__(self, tell: Callable[[News], None], called: Callable[[Pipeline], str] | None = None) -> None:
        self._tell, self._called, self._watch = tell, called or _by_folder, Watch()

    def moved(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """Tell how far the epoch is."""
        self._watch.begin(pipeline, stage, run)
        self._tell(Stood(self._called(pipeline), self._watch.inside(pipeline, stage, run)))

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """Tell what the epoch came to, at the end of the last in words too."""
        name, standing = self._called(pipeline), self._watch.after(pipeline, stage, run, epoch)
        self._tell(Stood(name, standing))
        if run.done:
            self._tell(Said(name, stage, [f"{stage} {name}: {standing}"]))

    def pruned(self, pipeline: Pipeline) -> None:
        """Tell what is left."""
        name = self._called(pipeline)
        self._tell(Said(name, PRUNED, list(pruning_lines(pipeline, name))))


def _by_folder(pipeline: Pipeline) -> str:
    return pipeline.folder.name
