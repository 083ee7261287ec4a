"""A training as it stands, from epoch to epoch, and its checkpoints: a killed run goes on where it was."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from otprune.errors import CheckpointError, TrainingError
from otprune.files import write_atomically
from otprune.tensors import named_tensors
from otprune.training.augment import augmented_epoch
from otprune.training.data.images import Dataset
from otprune.training.schedule import Steps
from otprune.training.step import EpochSums, Optimization, Step, Teacher

KEPT_CHECKPOINTS = 2


@dataclass(frozen=True)
class Training:
    """How to train: the paper's numbers, unless told otherwise. `decay_at` are shares of the epochs."""

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


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch came to on the training images."""

    epoch: int
    rate: float
    lam: float
    loss: float
    accuracy: float


class Run:
    """A model on its way through a training; `folder` is where it is saved and found again.

    The order of images, crops and mirrorings follow from the seed and the epoch alone, so nothing else needs saving
    but tensors and the number of epochs done.
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
        self.steps = len(self.labels) // training.batch
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
        return self.epoch >= self.training.epochs

    @property
    def epoch_done(self) -> bool:
        return self.position >= self.steps

    def begin_epoch(self) -> None:
        """Draw the epoch's images and set its learning rate and λ; go on inside it where a checkpoint was."""
        self.model.train()
        pixels, labels = self._epoch_images()
        self.step.begin(pixels, labels, self.schedule(self.epoch, self.training.epochs), self.lam, self._sums)
        self.position = self._sums.steps if self._sums is not None else 0
        self._sums = None

    def advance(self) -> None:
        """One step."""
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
        """Write a checkpoint, whole or not at all, and let go of all but the last two."""
        if self.folder is None:
            return
        sums = self.step.sums() if self.position else None
        if sums is not None:
            self._require_finite(sums)
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "history": [asdict(record) for record in self.history],
            "lam": self.lam,
            "sums": None if sums is None else asdict(sums),
        }
        metadata = {"training": json.dumps(asdict(self.training)), "state": json.dumps(state)}
        content = safetensors.torch.save({name: tensor.contiguous() for name, tensor in self._tensors()}, metadata)
        write_atomically(self.folder / f"at-{self.epoch:05d}-{self.position:07d}.safetensors", content)
        for old in checkpoints(self.folder)[:-KEPT_CHECKPOINTS]:
            old.unlink()

    def _epoch_images(self) -> tuple[Tensor, Tensor]:
        if self.training.augment:
            return augmented_epoch(self.pixels, self.labels, self.epoch, self.training.seed)
        generator = torch.Generator().manual_seed(self.training.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.labels), generator=generator).to(self.device)
        return self.pixels[order], self.labels[order]

    def _require_finite(self, sums: EpochSums) -> None:
        if sums.failed < 0:
            return
        number = self.epoch * self.steps + sums.failed
        left = checkpoints(self.folder) if self.folder is not None else []
        kept = f"The last good checkpoint is {left[-1]}." if left else "No checkpoint was written before."
        raise TrainingError(
            f"the loss is not a finite number at step {number} (epoch {self.epoch + 1}). {kept} "
            f"Train with a smaller learning rate or λ."
        )

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        own = named_tensors(self.model)
        names = {id(tensor): name for name, tensor in own.items()}
        yield from ((f"model.{name}", tensor.detach()) for name, tensor in own.items())
        for parameter, momentum in zip(self.step.parameters, self.step.momenta, strict=True):
            yield f"momentum.{names[id(parameter)]}", momentum

    def _resume(self, folder: Path) -> None:
        """Go on from the newest checkpoint that can be read."""
        for path in reversed(checkpoints(folder)):
            try:
                with safe_open(path, "pt") as file:
                    metadata = file.metadata() or {}
                    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            except SafetensorError:
                continue  # damaged: the one before is whole
            self._take(tensors, metadata, path)
            return

    def _take(self, tensors: dict[str, Tensor], metadata: dict[str, str], path: Path) -> None:
        ours = json.loads(json.dumps(asdict(self.training)))
        theirs = json.loads(metadata["training"])
        differing = [key for key in ours if ours[key] != theirs.get(key)]
        if differing:
            key = differing[0]
            raise CheckpointError(
                f"{path}: belongs to a training with {key}={theirs.get(key)}, not {ours[key]}. "
                f"Use another folder, or the same settings."
            )
        with torch.no_grad():
            for name, tensor in self._tensors():
                tensor.copy_(tensors[name])
        state = json.loads(metadata["state"])
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.lam = state["lam"]
        self._sums = None if state["sums"] is None else EpochSums(**state["sums"])


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("at-*.safetensors"))
