"""What an experiment is: a model, data, how to train, prune and fine-tune. Pure data; the defaults are the paper's."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NotRequired, TypedDict

import otprune as ot
from otprune.errors import TrainingError
from otprune.experiments.choosing import TARGETS, Target
from otprune.experiments.durations import milliseconds
from otprune.experiments.fields import checked, flat, made
from otprune.thresholds import Rule
from otprune.training.run import ScheduleName, Training


class Bounds(TypedDict):
    """What a plan keeps to, whatever the thresholds say; see `otprune.plan`."""

    max_ratio: float
    round_to: int
    ignore: NotRequired[Collection[str]]


OF_LATENCY = ("latency_runtime", "latency_threads")
UNBOUNDED = Bounds(max_ratio=1.0, round_to=1)


@dataclass(frozen=True)
class Pruning:
    """Which channels go: by OT or by Network Slimming, at their own thresholds or at those that meet a target.

    `max_drop` is in points of accuracy, `flops` and `params` are shares of the original, `latency` is a time with its
    unit, on this machine's CPU in a runtime with a number of threads; at most one of them.

    >>> Pruning(delta=1e-2).thresholds()
    OptimalThreshold(delta=0.01)
    >>> Pruning(flops=0.4).target
    Target(kind='flops', value=0.4)
    >>> Pruning(latency="1.5ms").target
    Target(kind='latency', value=1.5)
    """

    rule: Literal["ot", "ns"] = "ot"
    delta: float = 1e-3
    ratio: float = 0.5
    max_layer_ratio: float = 1.0
    round_to: int = 1
    calibration_images: int = 10_000
    max_drop: float | None = None
    flops: float | None = None
    params: float | None = None
    latency: str | None = None
    latency_runtime: Literal["torch", "onnxruntime", "openvino"] = "torch"
    latency_threads: int = 1

    def __post_init__(self) -> None:
        _ = self.thresholds(), self.target  # checked where they are made
        _require(0 <= self.max_layer_ratio <= 1, "pruning.max_layer_ratio must lie from 0 to 1", self.max_layer_ratio)
        _require(self.round_to >= 1, "pruning.round_to must be at least 1", self.round_to)
        _require(self.calibration_images >= 1, "pruning.calibration_images must be at least 1", self.calibration_images)
        _require(self.latency_threads >= 1, "pruning.latency_threads must be at least 1", self.latency_threads)
        chosen = [name for name in TARGETS if getattr(self, name) is not None]
        _require(len(chosen) <= 1, f"pruning can meet one of {', '.join(TARGETS)}", " and ".join(chosen))
        if self.latency is not None and self.round_to != 1:
            raise TrainingError(
                "pruning.round_to is chosen by measurement where pruning.latency is to be met: leave it out, or set it "
                "to 1 where the run has another"
            )

    def bounds_of(self, results: Mapping[str, Any]) -> Bounds:
        """What the plan of a run kept to; to meet a latency it rounds as was measured to be best.

        >>> Pruning(latency="1ms").bounds_of({"latency": {"round_to": 8}})["round_to"]
        8
        """
        measured = results.get("latency", {}) if self.latency is not None else {}
        return Bounds(max_ratio=self.max_layer_ratio, round_to=measured.get("round_to", self.round_to))

    @property
    def target(self) -> Target | None:
        """What the pruned network is asked to meet, where something is."""
        asked = ((name, getattr(self, name)) for name in TARGETS)
        return next((Target(name, _number(value)) for name, value in asked if value is not None), None)

    def thresholds(self) -> Rule:
        """The rule that finds the thresholds."""
        return ot.OptimalThreshold(self.delta) if self.rule == "ot" else ot.GlobalRatio(self.ratio)


@dataclass(frozen=True)
class Finetuning:
    """Training after pruning, without a penalty; all but epochs and rate is as in the training before.

    The rate is constant, or falls along a cosine to zero at the end. `distill` is the weight of the unpruned model's
    outputs beside the labels.

    >>> Finetuning(epochs=12).rate
    0.001
    """

    epochs: int = 40
    rate: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    report_after: tuple[int, ...] = (1, 3)
    distill: float = 0.0
    temperature: float = 4.0

    def __post_init__(self) -> None:
        _require(self.epochs >= 0, "finetuning.epochs must be at least 0", self.epochs)
        _require(math.isfinite(self.rate) and self.rate >= 0, "finetuning.rate must be at least 0", self.rate)
        _require(all(n >= 1 for n in self.report_after), "finetuning.report_after counts from 1", self.report_after)
        _require(0 <= self.distill <= 1, "finetuning.distill must lie from 0 to 1", self.distill)
        _require(0 < self.temperature < math.inf, "finetuning.temperature must be above 0", self.temperature)


@dataclass(frozen=True)
class Experiment:
    """One run of the whole pipeline; `hold_out` is the share of the training images that choices are made on.

    With `strict`, an image that cannot be read ends the run instead of being left out. `image_size` is the width and
    height that images of a folder are cut to, in pixels; None is 224.

    >>> Experiment("vgg14", "cifar10").training.epochs
    160
    """

    model: str
    data: str
    hold_out: float = 0.0
    image_size: int | None = None
    strict: bool = False
    training: Training = field(default_factory=Training)
    pruning: Pruning = field(default_factory=Pruning)
    finetuning: Finetuning = field(default_factory=Finetuning)

    def __post_init__(self) -> None:
        _require(0 <= self.hold_out < 1, "hold_out must lie from 0 to below 1", self.hold_out)
        _require(self.image_size is None or self.image_size >= 1, "image_size must be at least 1", self.image_size)
        if self.pruning.max_drop is not None and not self.hold_out:
            raise TrainingError(
                "pruning.max_drop chooses on training images that were held out of the training, "
                "and this run holds out none: train in another folder with --hold-out 0.1"
            )

    def finetune_training(self) -> Training:
        """Fine-tuning as a training.

        >>> Experiment("vgg14", "cifar10").finetune_training().lam
        0.0
        """
        own, plain = self.finetuning, self._without_penalty
        schedule: ScheduleName = "cosine" if own.schedule == "cosine" else "steps"
        return replace(plain, epochs=own.epochs, rate=own.rate, schedule=schedule, decay_at=())

    def scratch_training(self, flops_before: int, flops_after: int) -> Training:
        """Training of the pruned architecture from fresh weights: no penalty, and the paper's budget.

        >>> Experiment("vgg14", "cifar10").scratch_training(300, 200).epochs
        240
        """
        epochs = scratch_epochs(self.training.epochs, flops_before, flops_after)
        return replace(self._without_penalty, epochs=epochs)

    @property
    def _without_penalty(self) -> Training:
        return replace(self.training, lam=0.0, target_flops=None, penalized="all")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it.

        >>> Experiment("vgg14", "cifar10").to_dict()["finetuning"]["report_after"]
        [1, 3]
        """
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], where: str = "settings") -> "Experiment":
        """Read what `to_dict` made, or less of it; `where` is the file that an error names.

        >>> Experiment.from_dict({"model": "vgg14", "data": "cifar10", "training": {"epochs": 3}}).training.epochs
        3
        """
        return made(cls, checked(cls, flat(fields), where), where)


def scratch_epochs(epochs: int, flops_before: int, flops_after: int) -> int:
    """As many epochs as cost what the original training cost, but at most twice as many.

    >>> scratch_epochs(160, flops_before=300, flops_after=200), scratch_epochs(160, flops_before=300, flops_after=100)
    (240, 320)
    """
    return round(epochs * min(flops_before / flops_after, 2))


def _number(value: float | str) -> float:
    return milliseconds(value) if isinstance(value, str) else value


def _require(holds: bool, what: str, value: object) -> None:
    if not holds:
        raise TrainingError(f"{what}, not {value}")
