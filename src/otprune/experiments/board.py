"""TensorBoard: how each training goes from epoch to epoch, how γ spread, and where the thresholds fell.

Every stage of a run writes into a folder of its own: tensorboard/train, tensorboard/finetune, tensorboard/scratch.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report, Silent
from otprune.training.run import EpochRecord, Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
HISTOGRAMS = 20  # of each layer in a training, at most
SMALLEST = 1e-12  # where a γ of zero is drawn
LONGEST_WAIT = 5.0  # seconds; a clock that is set further back is not waited for


@contextmanager
def board(say: Callable[[str], None]) -> Iterator[Report]:
    """A report that writes for TensorBoard; where that is not installed, it is said once, and nothing is written.

    Where it cannot write, on a disk that is full say, it is said once too: no training ends for the sake of its curves.

    >>> from otprune.experiments import stages
    >>> with board(print) as report:
    ...     stages.train([], report)
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as missing:
        say(f"nothing is written for TensorBoard ({missing}): pip install 'otprune[train]'")
        yield Silent()
        return
    reporter = _Board(say)
    with _quiet_writers():
        try:
            yield reporter
        finally:
            reporter.close()


@dataclass
class _Open:
    """The events of a training, and when which of its images had been seen."""

    writer: "SummaryWriter"
    at: float
    images: int


class _Board:
    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._open: dict[tuple[str, str], _Open] = {}
        self._given_up = False

    def moved(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """Start the clock of the first epoch."""
        with self._as_far_as_possible() as possible:
            if possible:
                self._opened(pipeline, stage, run, first=run.epoch + 1)

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """Write the epoch's numbers, and γ now and then; all of it is on the disk before a checkpoint can be."""
        with self._as_far_as_possible() as possible:
            if possible:
                self._write(pipeline, stage, run, epoch)

    def pruned(self, pipeline: Pipeline) -> None:
        """A number by itself is no curve."""

    def close(self) -> None:
        """Let go of every file."""
        for found in self._open.values():
            with suppress(OSError):
                found.writer.close()

    @contextmanager
    def _as_far_as_possible(self) -> Iterator[bool]:
        """Whether to write; what cannot be written is the last that is tried."""
        try:
            yield not self._given_up
        except OSError as problem:
            self._given_up = True
            self._say(f"nothing more is written for TensorBoard: {problem.strerror or problem}")

    def _write(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        found = self._opened(pipeline, stage, run, first=epoch.epoch)
        for name, value in (_scalars(epoch) | _speed(found, run)).items():
            found.writer.add_scalar(name, value, epoch.epoch)
        if _is_drawn(epoch.epoch, run.training.epochs):
            for name, magnitudes in log_gammas(run.model).items():
                found.writer.add_histogram(f"log10 γ/{name}", magnitudes, epoch.epoch)
        found.writer.flush()
        if run.done:
            found.writer.close()
            del self._open[str(pipeline.folder), stage]

    def _opened(self, pipeline: Pipeline, stage: str, run: Run, first: int) -> _Open:
        """What was written of the epoch `first` and later, before the run was broken off, is taken back."""
        key = (str(pipeline.folder), stage)
        if key not in self._open:
            from torch.utils.tensorboard import SummaryWriter

            place = pipeline.folder / FOLDER / stage
            _wait_to_be_last(place)
            writer = SummaryWriter(str(place), purge_step=first if first > 1 else 0)
            if first == 1 and stage != "train":
                writer.add_text("pruning", _thresholds(pipeline.results), 0)
            self._open[key] = _Open(writer, time.monotonic(), _images(run))
        return self._open[key]


@contextmanager
def _quiet_writers() -> Iterator[None]:
    """TensorBoard writes in a thread, and what fails there is raised here too: its traceback would be noise."""
    shown = threading.excepthook

    def show(found: threading.ExceptHookArgs) -> None:
        if not (issubclass(found.exc_type, OSError) and type(found.thread).__module__.startswith("tensorboard.")):
            shown(found)

    threading.excepthook = show
    try:
        yield
    finally:
        threading.excepthook = shown


def _wait_to_be_last(place: Path) -> None:
    """Wait for the second after that of the last file of events.

    TensorBoard reads files in the order of their names, which begin with the second. Of two from one second, the one
    that takes epochs back might be read before the one that has them.
    """
    seconds = [int(path.name.split(".")[3]) for path in place.glob("events.out.tfevents.*")]
    wait = max(seconds, default=0) + 1 - time.time()
    if 0 < wait <= LONGEST_WAIT:
        time.sleep(wait)


def log_gammas(model: nn.Module) -> dict[str, Tensor]:
    """log10 |γ| of every batch norm, read from the device at once.

    >>> log_gammas(nn.Sequential(nn.BatchNorm2d(2)))
    {'0': tensor([0., 0.])}
    """
    norms = {name: m for name, m in model.named_modules() if isinstance(m, _BatchNorm) and m.affine}
    if not norms:
        return {}
    together = torch.cat([norm.weight.detach().float() for norm in norms.values()]).cpu()
    magnitudes = together.abs().clamp(min=SMALLEST).log10()
    return dict(zip(norms, magnitudes.split([len(norm.weight) for norm in norms.values()]), strict=True))


def _scalars(epoch: EpochRecord) -> dict[str, float]:
    found = {"loss": epoch.loss, "accuracy": epoch.accuracy, "learning rate": epoch.rate, "λ": epoch.lam}
    return found if epoch.flops is None else found | {"FLOPs share": epoch.flops}


def _speed(found: _Open, run: Run) -> dict[str, float]:
    """Images a second since the last epoch; unknown after the first where that took less than a second."""
    now, images = time.monotonic(), _images(run)
    spent, seen = now - found.at, images - found.images
    found.at, found.images = now, images
    return {"images per second": seen / spent} if seen and spent else {}


def _images(run: Run) -> int:
    return (run.epoch * run.steps + run.position) * run.training.batch


def _is_drawn(epoch: int, epochs: int) -> bool:
    every = math.ceil(epochs / (HISTOGRAMS - 2))
    return epoch in (1, epochs) or epoch % every == 0


def _thresholds(results: Mapping[str, Any]) -> str:
    """A table in Markdown."""
    layers: Sequence[Mapping[str, Any]] = results.get("layers", ())
    lines = ["batch norm | threshold | channels | kept", "--- | ---: | ---: | ---:"]
    lines += [f"{one['name']} | {one['threshold']:.3g} | {one['channels']} | {one['kept']}" for one in layers]
    return "\n".join(lines)
