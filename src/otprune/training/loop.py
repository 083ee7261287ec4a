"""The training loop, flat: for one run, or for several side by side on one device."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from otprune.errors import TrainingError
from otprune.training import distributed
from otprune.training.asking import Asking
from otprune.training.failures import SetAside
from otprune.training.holding import holding, is_held
from otprune.training.run import EpochRecord, Run
from otprune.training.stopping import Interrupted, stop_requests

SAVE_EVERY_SECONDS = 60.0
TELL_EVERY_SECONDS = 1.0

GO_ON, SAVE, STOP = range(3)

Report = Callable[[Run, EpochRecord], None]
Moved = Callable[[Run], None]


def train(
    run: Run, report: Report | None = None, save_every: float = SAVE_EVERY_SECONDS, moved: Moved | None = None
) -> None:
    """Train to the end of the run's epochs, from wherever it stands.

    >>> from torch import nn
    >>> from otprune.training.data import Dataset, Images
    >>> from otprune.training.run import Training
    >>> images = Images(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    >>> data = Dataset.of(images, images, ("even", "odd"))
    >>> run = Run(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), data, Training(epochs=2, batch=2))
    >>> train(run, lambda run, epoch: print(epoch.epoch, epoch.rate))
    1 0.1
    2 0.01
    """
    train_together([run], report, save_every, moved)


def train_together(
    runs: Sequence[Run],
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    moved: Moved | None = None,
) -> None:
    """Train several runs side by side; each is what it would be alone.

    On a GPU every run has a stream of its own, and steps are sent to them in turn. Checkpoints are written every
    `save_every` seconds, at the end, and when the user breaks off with Ctrl-C; a run with a folder goes on from there.

    A run that fails is set aside, and the others go to their end. Then its error is raised: as it is where there is one
    run, and with those of the others in `RunsFailed` where there are several.

    No other process can train in the same folders at the same time. Those of a group train together: they stop at the
    same step, whichever of them was asked to, and all wait while their leader saves. A run that fails ends all of
    theirs.

    `report` is told what each epoch came to. `moved` is told of each run inside its epochs, at most once a second.
    """
    aside = SetAside(runs)

    def end_epoch(run: Run) -> None:
        record = run.end_epoch()
        if report is not None:
            report(run, record)
        if run.done:
            run.save()

    def advance(run: Run) -> None:
        if not (stop.requested and distributed.current() is None):  # the first step of each may compile for minutes
            run.advance()

    with stop_requests() as stop, holding(_folders_of_their_own(runs)):
        saving, telling, asking = _Interval(save_every), _Interval(TELL_EVERY_SECONDS), Asking()
        while waiting := [run for run in aside.others() if not run.done]:
            aside.each(Run.begin_epoch, waiting)
            while unfinished := [run for run in aside.others(waiting) if not run.epoch_done]:
                aside.each(advance, unfinished)
                if moved is not None and telling.over():
                    aside.each(moved, unfinished)
                    telling.begin()
                asked = asking.most(STOP if stop.requested else SAVE if saving.over() else GO_ON, otherwise=GO_ON)
                if asked >= SAVE:
                    aside.each(Run.save, waiting)
                    saving.begin()
                if asked == STOP and aside.others(waiting):
                    raise Interrupted(_how_to_go_on(aside.others(waiting)))
            aside.each(end_epoch, waiting)
        # After the last step: what follows the training is not to begin.
        if distributed.most(STOP if stop.requested else GO_ON) == STOP and aside.others():
            raise Interrupted(_how_to_go_on(aside.others()))
    aside.end()


class _Interval:
    """Some seconds, and whether they are over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        self.since = time.monotonic()

    def over(self) -> bool:
        return time.monotonic() - self.since >= self.seconds


def chosen_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    name = _of_this_process(name)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise TrainingError(f"there is no device named {name!r}; choose cpu, cuda or auto")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise TrainingError(
            f"no GPU was found for --device {name}: use --device cpu, or check the driver with nvidia-smi"
        )
    return device


def _of_this_process(name: str) -> str:
    """Of several processes that train together, each has a GPU of its own."""
    group, count = distributed.current(), torch.cuda.device_count()
    if group is None or not name.startswith("cuda") or count == 0:
        return name
    if name != "cuda" or group.local_rank >= count:
        raise TrainingError(
            f"several processes train together, each on a GPU of its own: give --device cuda, not {name}, and start at "
            f"most {count} on this machine, with torchrun --nproc-per-node {count}"
        )
    torch.cuda.set_device(group.local_rank)
    return f"cuda:{group.local_rank}"


def _folders_of_their_own(runs: Sequence[Run]) -> list[Path]:
    """The folders of runs, but for those inside a folder that is held as a whole; of a group, only the leader holds."""
    if not distributed.leads():
        return []
    folders = [run.folder for run in runs if run.folder is not None and not run.done]
    return [folder for folder in folders if not is_held(folder.parent)]


def _how_to_go_on(runs: Sequence[Run]) -> str:
    folders = [str(run.folder) for run in runs if run.folder is not None]
    if not folders:
        return "stopped; nothing was saved, since the run has no folder"
    return f"stopped and saved in {', '.join(folders)}: give the same command again to go on"
