"""Trainings by two processes in the middle of which something happens, at a step and not at a time."""

import os
import signal
import sys
import time
from pathlib import Path

from torch import Tensor, nn

from otprune.errors import TrainingError
from otprune.training import distributed
from otprune.training.loop import train
from otprune.training.run import Run, Training
from tests import processes
from tests.groups import left
from tests.processes import DIGITS

TRAINING = Training(epochs=3, batch=64, rate=0.05, lam=1e-3)  # of 21 steps each
KILLED = "OTPRUNE_TEST_KILLED"  # rank and step, as 1:30
RESTARTS = "restarts"
INTERRUPTED, INTERRUPT_AT = "OTPRUNE_TEST_INTERRUPT", 8
FAILED = "OTPRUNE_TEST_FAILED_RANK"


class Disturbed(nn.Module):
    """What the environment says happens in a step of one process, of the first that torchrun starts."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += self.training
        if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0" and self.training:
            self._happens()
        return images

    def _happens(self) -> None:
        rank = os.environ.get("RANK")
        if f"{rank}:{self.steps}" == os.environ.get(KILLED):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.steps == INTERRUPT_AT and rank == "1" and INTERRUPTED in os.environ:
            _press_ctrl_c()
        if self.steps == 2 and rank == os.environ.get(FAILED, "nobody"):
            raise TrainingError(f"process {rank} cannot go on")


def _press_ctrl_c() -> None:
    """To torchrun, as from a shell; this process goes on when it has been told of it, in whichever of its threads."""
    told: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: told.append(number))
    os.kill(os.getppid(), signal.SIGINT)
    while not told:
        time.sleep(0.01)
    signal.signal(signal.SIGINT, before)
    signal.raise_signal(signal.SIGINT)


def net(num_classes: int = 10) -> nn.Module:
    """Batch norm and dropout, and what may happen."""
    return nn.Sequential(Disturbed(), *processes.net())


def train_disturbed(folder: Path) -> None:
    """Train, with a checkpoint after each step, and leave the weights of every process."""
    run = Run(net(), DIGITS, TRAINING, folder / "run")
    train(run, save_every=0)
    left(folder, run.model.state_dict() | {f"momentum{i}": one for i, one in enumerate(run.step.momenta)})


def restarts(folder: Path) -> int:
    """How often torchrun had started anew the processes that came to the end."""
    return int((folder / RESTARTS).read_text())


if __name__ == "__main__":
    with distributed.joined(distributed.launched()):
        train_disturbed(Path(sys.argv[1]))
        Path(sys.argv[1], RESTARTS).write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])
