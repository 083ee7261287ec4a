"""A training as it stands, from epoch to epoch, and its checkpoints: a killed run goes on where it was."""

import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from otprune.errors import CheckpointError, TrainingError
from otprune.files import write_atomically
from otprune.tensors import named_tensors
from otprune.training.augment import augmented_epoch
from otprune.training.data.images import Dataset
from otprune.training.data.seeds import derived_seed, generator
from otprune.training.schedule import Steps
from otprune.training.step import EpochSums, Optimization, Step, Teacher

KEPT_CHECKPOINTS = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """How to train: the paper's numbers, unless told otherwise. `decay_at` are shares of the epochs.

    >>> Training(epochs=40, rate=1e-3, decay_at=()).batch
    64
    """

    epochs: int = 160
    batch: int = 64
    rate: float = 0.1
    decay_at: tuple[float, ...] = (0.5, 0.75)
    lam: float = 1e-4
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    proximal: bool = False
    augment: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch", 1), ("rate", 0), ("lam", 0), ("momentum", 0), ("weight_decay", 0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise TrainingError(f"{name} must be a finite number and at least {least}, not {value}")


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch came to on the training images.

    >>> EpochRecord(epoch=1, rate=0.1, lam=1e-4, loss=2.3, accuracy=0.1).accuracy
    0.1
    """

    epoch: int
    rate: float
    lam: float
    loss: float
    accuracy: float


class Run:
    """A model on its way through a training; `folder` is where it is saved and found again.

    The order of images, crops and mirrorings follow from the seed and the epoch alone, and what dropout draws on a CPU
    from the seed and the step, so nothing else needs saving but tensors and what the epochs came to.

    >>> from otprune.training.data.images import Images
    >>> images = Images(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    >>> data = Dataset.of(images, images, ("even", "odd"))
    >>> run = Run(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), data, Training(epochs=1, batch=2))
    >>> run.epoch, run.steps, run.done
    (0, 2, False)
    """

    def __init__(
        self,
        model: nn.Module,
        data: Dataset,
        training: Training,
        folder: Path | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.training, self.folder = model, training, folder
        self.device = next(model.parameters()).device
        self.pixels, self.labels = data.train.pixels.to(self.device), data.train.labels.to(self.device)
        self.schedule = Steps(training.rate, training.decay_at)
        optimization = Optimization(
            training.momentum, training.weight_decay, training.label_smoothing, training.proximal
        )
        self.step = Step(model, data.mean, data.std, training.batch, optimization, teacher)
        self.steps = len(self.labels) // training.batch  # the images that do not fill a batch wait for the next epoch
        self.history: list[EpochRecord] = []
        self.lam = training.lam
        self.position = 0
        self._sums: EpochSums | None = None
        if self.steps == 0:
            raise TrainingError(f"{len(self.labels)} images do not fill one batch of {training.batch}")
        if folder is not None:
            self._resume(folder)

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    @property
    def done(self) -> bool:
        """Whether every epoch is."""
        return self.epoch >= self.training.epochs

    @property
    def epoch_done(self) -> bool:
        """Whether every step of the present epoch is."""
        return self.position >= self.steps

    def begin_epoch(self) -> None:
        """Draw the epoch's images and set its learning rate and λ; go on inside it where a checkpoint was."""
        self.model.train()
        pixels, labels = epoch_images(self.pixels, self.labels, self.training, self.epoch)
        self.step.begin(pixels, labels, self.schedule(self.epoch, self.training.epochs), self.lam, self._sums)
        self.position = self._sums.steps if self._sums is not None else 0
        self._sums = None

    def advance(self) -> None:
        """One step. On a CPU its random numbers are its own, whatever was drawn before or by a run beside it."""
        if self.device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(derived_seed(self.training.seed, self.epoch, self.position))
                self.step()
        else:
            self.step()
        self.position += 1

    def end_epoch(self) -> EpochRecord:
        """Read off what the epoch came to; stop if its loss left the numbers."""
        sums = self.step.sums()
        self._require_finite(sums)
        seen = sums.steps * self.training.batch
        rate = self.schedule(self.epoch, self.training.epochs)
        self.history.append(EpochRecord(self.epoch + 1, rate, self.lam, sums.loss / seen, sums.hits / seen))
        self.position = 0
        return self.history[-1]

    def save(self) -> None:
        """Write a checkpoint, whole or not at all, and let go of all but the last two; refuse what is not finite."""
        sums = self.step.sums() if self.position else None
        tensors = {name: tensor.contiguous() for name, tensor in self._tensors()}
        self._require_finite(sums, tensors)
        if self.folder is None:
            return
        state = {
            "history": [asdict(record) for record in self.history],
            "lam": self.lam,
            "sums": None if sums is None else asdict(sums),
        }
        metadata = {"training": json.dumps(self._settings()), "state": json.dumps(state)}
        path = self.folder / f"at-{self.epoch:05d}-{self.position:07d}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, safetensors.torch.save(tensors, metadata))
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be written: {error.strerror}. {self._last_good()} "
                f"Make room, then give the same command again to go on from there."
            ) from error
        _let_go(self.folder)

    def _require_finite(self, sums: EpochSums | None, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Stop at a loss that left the numbers, and at weights that did so in a step whose loss had not yet."""
        before = self.epoch * self.steps
        if sums is not None and sums.failed >= 0:
            found = f"the loss is not a finite number at step {before + sums.failed + 1} (epoch {self.epoch + 1})"
        elif names := [name for name, tensor in (tensors or {}).items() if not bool(tensor.isfinite().all())]:
            found = f"{names[0]} is not finite after step {before + self.position}"
        else:
            return
        raise TrainingError(f"{found}. {self._last_good()} Train with a smaller learning rate or λ, in another folder.")

    def _last_good(self) -> str:
        left = checkpoints(self.folder) if self.folder is not None else []
        return f"The last good checkpoint is {left[-1]}." if left else "No checkpoint was written before."

    def _settings(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this run, as JSON has it."""
        teacher = self.step.teacher
        others = {
            "images": len(self.labels),
            "teacher_weight": teacher and teacher.weight,
            "teacher_temperature": teacher and teacher.temperature,
        }
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self.training) | others))
        return settings

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        own = named_tensors(self.model)
        names = {id(tensor): name for name, tensor in own.items()}
        yield from ((f"model.{name}", tensor.detach()) for name, tensor in own.items())
        for parameter, momentum in zip(self.step.parameters, self.step.momenta, strict=True):
            yield f"momentum.{names[id(parameter)]}", momentum

    def _resume(self, folder: Path) -> None:
        """Go on from the newest checkpoint that can be read; one that cannot is set aside."""
        found = checkpoints(folder)
        while found:
            path = found.pop()
            try:
                tensors, metadata = _read(path)
            except SafetensorError as error:
                before = found[-1] if found else "the start"
                log.warning("%s is damaged (%s) and set aside: going on from %s", path, error, before)
                path.rename(path.with_suffix(".damaged"))
            else:
                self._take(tensors, metadata, path)
                return

    def _take(self, tensors: dict[str, Tensor], metadata: dict[str, str], path: Path) -> None:
        if not {"training", "state"} <= metadata.keys():
            raise CheckpointError(f"{path}: is no checkpoint of a training. Use another folder.")
        self._require_same_settings(json.loads(metadata["training"]), path)
        own = dict(self._tensors())
        _require_same_kind(own, tensors, path)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])
        state = json.loads(metadata["state"])
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.lam = state["lam"]
        self._sums = None if state["sums"] is None else EpochSums(**state["sums"])

    def _require_same_settings(self, theirs: dict[str, Any], path: Path) -> None:
        for key, value in self._settings().items():
            if theirs.get(key) != value:
                raise CheckpointError(
                    f"{path}: belongs to a training with {key}={theirs.get(key)}, not {value}. "
                    f"Use another folder, or the same settings."
                )


def epoch_images(pixels: Tensor, labels: Tensor, training: Training, epoch: int) -> tuple[Tensor, Tensor]:
    """An epoch's images in its own order, cropped and mirrored if the training says so.

    >>> pixels, labels = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 2])
    >>> epoch_images(pixels, labels, Training(augment=False), epoch=0)[1].sort().values
    tensor([0, 1, 2])
    """
    if training.augment:
        return augmented_epoch(pixels, labels, epoch, training.seed)
    order = torch.randperm(len(labels), generator=generator(training.seed, epoch))
    return pixels[order.to(pixels.device)], labels[order.to(labels.device)]


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first.

    >>> checkpoints(Path("nowhere"))
    []
    """
    return sorted(folder.glob("at-*.safetensors"))


def _let_go(folder: Path) -> None:
    """Remove all but the last checkpoints, and the beginnings of some that a kill left."""
    for old in (*checkpoints(folder)[:-KEPT_CHECKPOINTS], *folder.glob(".at-*")):
        old.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _require_same_kind(own: Mapping[str, Tensor], theirs: Mapping[str, Tensor], path: Path) -> None:
    for name in (*own, *theirs):
        ours, found = (_kind(tensors.get(name)) for tensors in (own, theirs))
        if ours != found:
            raise CheckpointError(
                f"{path}: belongs to another model, whose {name} is {found}, not {ours}. "
                f"Use another folder, or the same model."
            )


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} in {str(tensor.dtype).removeprefix('torch.')}"
