"""A training as it stands, from step to step and from epoch to epoch: a killed run goes on where it was."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, get_args

import torch
from torch import Tensor, nn

from otprune.errors import CheckpointError, TrainingError
from otprune.ista import untied
from otprune.tensors import named_tensors
from otprune.training import distributed
from otprune.training.batch_loss import Teacher
from otprune.training.checkpoint import Checkpoint, at, last_good, newest
from otprune.training.data import AnyDataset
from otprune.training.data.seeds import derived_seed
from otprune.training.feed import Chunk, feed
from otprune.training.group_step import GroupStep
from otprune.training.schedule import Cosine, Schedule, Steps
from otprune.training.sgd import Optimization
from otprune.training.steering import Steering, flops_share, steered, steering_of
from otprune.training.step import EpochSums, Step

ScheduleName = Literal["steps", "cosine"]
PenalizedName = Literal["all", "untied"]
CHOICES = {"schedule": get_args(ScheduleName), "penalized": get_args(PenalizedName)}
LEAST = {"epochs": 0, "batch": 1, "rate": 0, "lam": 0, "momentum": 0, "weight_decay": 0, "cutout": 0}


@dataclass(frozen=True)
class Training:
    """How to train: the paper's numbers, unless told otherwise.

    The rate falls in steps, after the shares of the epochs that are `decay_at`, or along a cosine, to zero at the end.
    `cutout` is the side of a square that is blanked in every training image.

    `batch` is what all processes of a group have together. With `sync_batch_norm` their batch norms go by all of it;
    otherwise each goes by its own share, and the running statistics are the leader's.

    `penalized` are the batch norms that the penalty is on: all, or only those that no sum or product ties to another,
    as inside the blocks of a residual network. Then only those are pruned, too.

    With `target_flops`, a share of the original FLOPs, λ steers itself so that OT keeps that much, starting from `lam`.

    >>> Training(epochs=40, rate=1e-3, decay_at=()).batch
    64
    """

    epochs: int = 160
    batch: int = 64
    rate: float = 0.1
    schedule: ScheduleName = "steps"
    decay_at: tuple[float, ...] = (0.5, 0.75)
    lam: float = 1e-4
    target_flops: float | None = None
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    proximal: bool = False
    penalized: PenalizedName = "all"
    augment: bool = True
    cutout: int = 0
    sync_batch_norm: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise TrainingError(f"{name} must be a finite number and at least {least}, not {value}")
        if self.momentum >= 1:
            raise TrainingError(f"momentum must be below 1, or steps would grow without end, not {self.momentum}")
        if not 0 <= self.label_smoothing <= 1:
            raise TrainingError(f"label_smoothing must lie from 0 to 1, not {self.label_smoothing}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise TrainingError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)}")
        if self.cutout and not self.augment:
            raise TrainingError(
                f"cutout must be 0 where augment is off, as it is by the recipe of the digits, not {self.cutout}: "
                f"set cutout to 0, or turn augment on"
            )
        if not all(0 <= share <= 1 for share in self.decay_at):
            raise TrainingError(f"decay_at must be shares of the epochs, from 0 to 1 each, not {self.decay_at}")
        if self.target_flops is not None and not 0 < self.target_flops < 1:
            raise TrainingError(
                f"target_flops must lie between 0 and 1, a share of the original FLOPs, not {self.target_flops}"
            )
        if self.target_flops is not None and self.penalized != "all":
            raise TrainingError("penalized must be all where a target for FLOPs steers λ: it goes by all batch norms")
        if self.target_flops is not None and not (self.lam > 0 and self.rate > 0):
            raise TrainingError("lam and rate must be above 0 where target_flops is given: λ is steered from there")

    def rates(self) -> Schedule:
        """The learning rate, from epoch to epoch.

        >>> Training(schedule="cosine").rates()
        Cosine(rate=0.1)
        """
        return Cosine(self.rate) if self.schedule == "cosine" else Steps(self.rate, self.decay_at)


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch came to on the training images; `flops` is the share that OT would keep, where it was measured.

    >>> EpochRecord(epoch=1, rate=0.1, lam=1e-4, loss=2.3, accuracy=0.1).accuracy
    0.1
    """

    epoch: int
    rate: float
    lam: float
    loss: float
    accuracy: float
    flops: float | None = None


class Run:
    """A model on its way through a training; `folder` is where it is saved and found again.

    The order of images, crops and mirrorings follow from the seed and the epoch alone, and what dropout draws from the
    seed and the step, so nothing else needs saving but tensors and what the epochs came to.

    >>> from otprune.training.data import Dataset, Images
    >>> images = Images(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    >>> data = Dataset.of(images, images, ("even", "odd"))
    >>> run = Run(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), data, Training(epochs=1, batch=2))
    >>> run.epoch, run.steps, run.done
    (0, 2, False)
    """

    def __init__(
        self,
        model: nn.Module,
        data: AnyDataset,
        training: Training,
        folder: Path | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.training, self.folder = model, training, folder
        self.device = next(model.parameters()).device
        self.share = distributed.share()
        self.feed, self.images = feed(data, training, self.device, self.share), len(data.train)
        self.schedule = training.rates()
        self._example = torch.zeros(1, *data.image_shape).to(next(model.parameters()))
        self.step = self._made_step(data, teacher)
        self.history: list[EpochRecord] = []
        self.lam = training.lam
        self.position = 0
        self._sums: EpochSums | None = None  # of an epoch under way in the checkpoint, until it is gone on with
        self._chunks: Iterator[Chunk] = iter(())
        self._loaded = 0  # steps whose images are in place
        self._steering = steering_of(training, self.steps)
        if self._steering is not None:
            flops_share(model, self._example)  # a model that cannot be measured is refused before it is trained
        if folder is not None:
            self._resume(folder)

    @property
    def steps(self) -> int:
        """How many there are in an epoch."""
        return self.feed.steps

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
        """Draw the epoch's images and set its learning rate and λ; go on inside it where it was broken off."""
        sums = self._under_way()
        self.model.train()
        self.step.begin(self._rate, self.lam, sums)
        self.position = 0 if sums is None else sums.steps
        self._chunks, self._loaded = self.feed.chunks(self.epoch, self.position), 0
        self._sums = None

    def advance(self) -> None:
        """One step. Its random numbers are its own, whatever was drawn before or by a run beside it."""
        if self._loaded == 0:
            chunk = next(self._chunks)
            self.step.load(*chunk)
            self._loaded = len(chunk.labels) // self.share.size(self.training.batch) - chunk.done
        self.step(self._step_seed)
        self.position += 1
        self._loaded -= 1

    def so_far(self) -> EpochRecord:
        """What the epoch under way has come to; waits for the device."""
        return self._record(self.step.sums())

    def end_epoch(self) -> EpochRecord:
        """Read off what the epoch came to; stop if its loss left the numbers."""
        sums = self.step.sums()
        self._require_finite(sums)
        self.history.append(self._record(sums))
        self.position = 0
        if self._steering is not None:
            self._steer(self._steering)
        return self.history[-1]

    def save(self) -> None:
        """Write a checkpoint, whole or not at all, and let go of all but the last two; refuse what is not finite."""
        distributed.led(self._save)

    def _save(self) -> None:
        sums, tensors = self._under_way(), dict(self._tensors())
        self._require_finite(sums, tensors)
        if self.folder is not None:
            path = at(self.folder, self.epoch, 0 if sums is None else sums.steps)
            Checkpoint(path, tensors, self._settings(), self._state(sums)).write()

    @property
    def _rate(self) -> float:
        return self.schedule(self.epoch, self.training.epochs)

    @property
    def _step_seed(self) -> int:
        """Processes of a group do not draw alike, but for the leader, which draws as if it were alone."""
        others = (self.share.number,) if self.share.number else ()
        return derived_seed(self.training.seed, self.epoch, self.position, *others)

    def _made_step(self, data: AnyDataset, teacher: Teacher | None) -> Step:
        given = (self.model, data.mean, data.std, self.training.batch, self._optimization, teacher)
        group = distributed.current()
        synchronized = self.training.sync_batch_norm
        step = Step(*given) if group is None else GroupStep(*given, group=group, synchronized=synchronized)
        if self.training.penalized == "untied" and self.training.lam:
            step.penalize(self._untied())
        return step

    def _untied(self) -> list[str]:
        found = untied(self.model, self._example)
        if not found:
            raise TrainingError(
                "penalized must be all, not untied: this model has no batch norm that a sum or product does not tie to "
                "another"
            )
        return found

    @property
    def _optimization(self) -> Optimization:
        own = self.training
        return Optimization(own.momentum, own.weight_decay, own.label_smoothing, own.proximal)

    def _under_way(self) -> EpochSums | None:
        """What the epoch has come to if it has begun, here or in the checkpoint that was found."""
        return self.step.sums() if self.position else self._sums

    def _record(self, sums: EpochSums) -> EpochRecord:
        seen = max(sums.steps, 1) * self.training.batch
        return EpochRecord(self.epoch + 1, self._rate, self.lam, sums.loss / seen, sums.hits / seen)

    def _steer(self, steering: Steering) -> None:
        """Measure what OT would keep, where it is time to, and set the next epoch's λ: the leader's for all."""
        last = self.history[-1]
        if steering.measured_after(last.epoch):
            share = distributed.led(lambda: flops_share(self.model, self._example, steering.chatter(last)))
            self.history[-1] = replace(last, flops=share)
        self.lam = distributed.led(lambda: steered(self.history, steering))

    def _require_finite(self, sums: EpochSums | None, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Stop at a loss that left the numbers, and at weights that did so in a step whose loss had not yet."""
        before = self.epoch * self.steps
        if sums is not None and sums.failed >= 0:
            found = f"the loss is not a finite number at step {before + sums.failed + 1} (epoch {self.epoch + 1})"
        elif names := [name for name, tensor in (tensors or {}).items() if not bool(tensor.isfinite().all())]:
            found = f"{names[0]} is not finite after step {before + self.position}"
        else:
            return
        where = "" if self.folder is None else f"{self.folder}: "  # which of several runs it is
        way_out = "Train with a smaller learning rate or λ, in another folder."
        raise TrainingError(f"{where}{found}. {last_good(self.folder)} {way_out}")

    def _settings(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this run, as JSON has it."""
        teacher = self.step.teacher
        others = {
            "images": self.images,
            "teacher_weight": teacher and teacher.weight,
            "teacher_temperature": teacher and teacher.temperature,
        }
        return _as_json(self.training) | others

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        own = named_tensors(self.model)
        names = {id(tensor): name for name, tensor in own.items()}
        yield from ((f"model.{name}", tensor.detach()) for name, tensor in own.items())
        for parameter, momentum in zip(self.step.parameters, self.step.momenta, strict=True):
            yield f"momentum.{names[id(parameter)]}", momentum

    def _state(self, sums: EpochSums | None) -> dict[str, Any]:
        """What is saved besides tensors and settings, as JSON has it."""
        history = [asdict(record) for record in self.history]
        return {"history": history, "lam": self.lam, "sums": None if sums is None else asdict(sums)}

    def _take_up(self, state: Mapping[str, Any]) -> None:
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.lam = state["lam"]
        self._sums = None if state["sums"] is None else EpochSums(**state["sums"])

    def _resume(self, folder: Path) -> None:
        """Go on from the newest checkpoint that can be read, the same in all processes."""
        found = distributed.leader_first(lambda: newest(folder))
        distributed.require_same("newest checkpoint", None if found is None else found.path.name)
        if found is None:
            return
        found = replace(found, settings=_as_json(Training()) | found.settings)  # older ones lack newer settings
        own = dict(self._tensors())
        found.require_same(self._settings(), own)
        found.require_state(_State)
        self._require_possible(found)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(found.tensors[name])
        self._take_up(found.state)

    def _require_possible(self, found: Checkpoint) -> None:
        """Refuse a place that this training never comes to."""
        epochs = [record["epoch"] for record in found.state["history"]]
        step = 0 if found.state["sums"] is None else found.state["sums"]["steps"]
        if epochs != list(range(1, len(epochs) + 1)) or len(epochs) > self.training.epochs:
            place = f"the epochs {epochs} behind it, of {self.training.epochs}"
        elif not 0 <= step <= self.steps:
            place = f"step {step} of an epoch that has {self.steps}"
        else:
            return
        raise CheckpointError(f"{found.path}: is no checkpoint of this training: it has {place}. Use another folder.")


class _State(TypedDict):
    """What a checkpoint has besides tensors and settings; some trainings have penalties by layer too."""

    history: list[EpochRecord]
    lam: float
    sums: EpochSums | None
    layer_penalties: NotRequired[dict[str, float]]


def _as_json(training: Training) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(json.dumps(asdict(training)))
    return settings
