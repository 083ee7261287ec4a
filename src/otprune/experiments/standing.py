"""How a training stands: epoch, loss, accuracy, speed and time left."""

import time
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from otprune.experiments.pipeline import Pipeline
from otprune.training.run import EpochRecord, Run

PACE_OVER_SECONDS = 30.0


@dataclass(frozen=True)
class Standing:
    """A training at a moment: `speed` is in images a second, 0 as long as it is not known, `left` in images.

    >>> str(Standing("train", 2.5, 10, loss=0.5, accuracy=0.875, speed=100.0, left=6000))
    'epoch 2.5/10 loss 0.500 accuracy 87.50% 100 images/s, 0:01:00 left'
    """

    stage: str
    epoch: float
    epochs: int
    loss: float
    accuracy: float
    speed: float
    left: int

    @property
    def epochs_done(self) -> str:
        """Of how many, such as 2.5/10."""
        done = f"{self.epoch:.0f}" if self.epoch == round(self.epoch) else f"{self.epoch:.1f}"
        return f"{done}/{self.epochs}"

    @property
    def time_left(self) -> str:
        """Hours, minutes and seconds; nothing where it is not known or over."""
        return str(timedelta(seconds=round(self.left / self.speed))) if self.speed > 0 and self.left else ""

    def __str__(self) -> str:
        text = f"epoch {self.epochs_done} loss {self.loss:.3f} accuracy {self.accuracy:.2%}"
        speed = f" {self.speed:,.0f} images/s" if self.speed > 0 else ""
        return text + speed + (f", {self.time_left} left" if self.time_left else "")


class Watch:
    """Follows trainings, and knows the speed of each over the last half minute.

    >>> Watch().forget("runs/a", "train")
    """

    def __init__(self) -> None:
        self._paces: dict[tuple[str, str], _Pace] = {}

    def begin(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """Start the clock of a training, unless it runs."""
        self._pace(pipeline, stage, run)

    def inside(self, pipeline: Pipeline, stage: str, run: Run) -> Standing:
        """How a training stands inside an epoch; waits for the device."""
        return self._standing(pipeline, stage, run, run.so_far(), run.epoch + run.position / run.steps)

    def after(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> Standing:
        """How it stands after an epoch; at the end of the last its clock is let go."""
        found = self._standing(pipeline, stage, run, epoch, epoch.epoch)
        if run.done:
            self.forget(str(pipeline.folder), stage)
        return found

    def forget(self, folder: str, stage: str) -> None:
        """Let go of the clock of a training."""
        self._paces.pop((folder, stage), None)

    def _standing(self, pipeline: Pipeline, stage: str, run: Run, came_to: EpochRecord, epoch: float) -> Standing:
        pace, epochs, images = self._pace(pipeline, stage, run), run.training.epochs, _images(run, epoch)
        pace.mark(images)
        left = _images(run, epochs) - images
        return Standing(stage, epoch, epochs, came_to.loss, came_to.accuracy, pace.speed, left)

    def _pace(self, pipeline: Pipeline, stage: str, run: Run) -> "_Pace":
        key = (str(pipeline.folder), stage)
        if key not in self._paces:
            self._paces[key] = _Pace()
            self._paces[key].mark(_images(run, run.epoch + run.position / run.steps))
        return self._paces[key]


class _Pace:
    """Images a second, over the last half minute."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, images: int) -> None:
        """So many images are done by now."""
        now = time.monotonic()
        self._marks.append((now, images))
        while len(self._marks) > 2 and self._marks[1][0] < now - PACE_OVER_SECONDS:
            self._marks.popleft()

    @property
    def speed(self) -> float:
        """Zero as long as it is not known."""
        (began, before), (now, images) = self._marks[0], self._marks[-1]
        return (images - before) / max(now - began, 1e-9)


def _images(run: Run, epochs: float) -> int:
    return round(epochs * run.steps) * run.training.batch
