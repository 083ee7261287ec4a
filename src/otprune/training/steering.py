"""A λ that steers itself: it rises and falls during one training, so that OT ends up at a given share of the FLOPs.

The penalty pulls γ down at a speed of rate·λ, and channels hardly come back once they are gone. So the share of FLOPs
that OT would keep is led down a path: most of the way while the learning rate is high, the rest after its first decay,
and never past the target. λ follows from what was measured after the epochs so far and from nothing else, so a training
that goes on from a checkpoint steers as if it had never stopped.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from otprune.cost import cost
from otprune.plan import plan
from otprune.surgery import prune
from otprune.thresholds import OptimalThreshold, Thresholds

if TYPE_CHECKING:
    from otprune.training.run import Training

MEASUREMENTS = 80  # about as many in a training, at most

# Logarithms of λ and of the share, and shares of the training: the law is the same for short trainings and long ones.
GAIN = 35.0  # how fast log λ moves, per training, for an error of one in the log of the share
BRAKE = 2.5  # how much faster it falls than it rises: channels that are gone hardly come back
TRAVEL = 0.25  # how far a γ moves until the share has answered to λ: the error counts as it will be by then
LONGEST_WAIT = 0.08  # for an answer
WINDOW = 0.04  # over which level and slope of the error are averaged
FASTEST_RISE, FASTEST_FALL = 10 * math.log(10), 20 * math.log(10)  # of log λ: tenfold in a tenth of the training
LATE_GAIN = 0.3  # the lower the learning rate, the slower γ answer: the gain grows with this power of it
LATE_LIMIT = 6.0  # how far λ may go beyond its largest before the first decay
LAST_WAY = 0.4  # how far a γ would go in a whole training at the pace of its last part
LEAST = 0.1  # of what λ was on the whole: without any, channels that are gone come back as small ones
SMALL_STEP = 0.04  # of a γ. In larger steps it jumps about zero so widely that OT takes it for alive
# Until the first channels are gone, there is nothing to go by but how fast γ are under way. The first of them are to
# arrive when a tenth of the training is done, for a target of 1/e, or up to three times sooner.
FALLEN = 0.05  # of the way to the target, in logarithms
WAY_TO_ZERO, FIRST_ARRIVAL, SOONER = 0.5, 0.1, 3.0
# How much of the way from one to the target is done, in logarithms, at shares of the time from then to the first decay
# of the learning rate. With a constant λ the share falls much like this.
EARLY_PATH = ((0.0, 0.0), (0.2, 0.41), (0.5, 0.76), (0.8, 0.945), (1.0, 1.0))
# What is gone does not come back, and some may go by itself when the rate decays, so a little of the way is left for
# afterwards: not much, since at a tenth of the rate hardly a γ moves any more. A third of that time is enough for it.
LEFT_FOR_LATER, LATE_ARRIVAL = 0.02, 0.3
LATEST_DECAY = 0.5
# A cosine falls all the time. By half of it, γ have had four fifths of their way; near its end it is as low as steps
# are in their last part. Were λ to give way sooner, while rates are higher, channels that are gone would come back.
COSINE_DECAY, COSINE_ENDING, COSINE_LEFT = 0.5, 0.9, 0.08


class Epoch(Protocol):
    """What an epoch came to, as far as steering looks at it."""

    @property
    def epoch(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def lam(self) -> float: ...
    @property
    def flops(self) -> float | None: ...


@dataclass(frozen=True)
class Steering:
    """Where a training is to land, and how it moves: what λ depends on besides the epochs so far.

    `decay` is the share of the training after which the learning rate first falls, `left` how much of the way is left
    for the time after that, and `ending` the share after which no γ is to move far. `pace` is how far a γ that the loss
    does not hold moves in a step, for rate·λ = 1, and `steps` are those of an epoch.

    >>> Steering(target=0.4, epochs=160, steps=781).measured_after(2)
    True
    """

    target: float
    epochs: int
    steps: int
    decay: float = 0.5
    ending: float = 0.75
    pace: float = 10.0
    left: float = LEFT_FOR_LATER

    @property
    def first_decay(self) -> float:
        """`decay`, or half the training where it comes later or not at all."""
        return min(self.decay, LATEST_DECAY)

    def is_early(self, epoch: Epoch) -> bool:
        """Whether it began before the first decay."""
        return epoch.epoch - 1 < self.decay * self.epochs

    def has_fallen(self, epoch: Epoch) -> bool:
        """Whether the first channels were gone after that epoch."""
        return epoch.flops is not None and epoch.flops < self.target**FALLEN

    def measured_after(self, epoch: int) -> bool:
        """Whether the share is measured after that epoch, counted from 1; after the last one it always is."""
        return epoch % max(1, self.epochs // MEASUREMENTS) == 0 or epoch == self.epochs

    def speed(self, epoch: Epoch) -> float:
        """How far λ moves a γ in an epoch if nothing holds it."""
        return self.steps * self.pace * epoch.rate * epoch.lam

    def answer(self, epoch: Epoch) -> float:
        """How many epochs pass until the share shows what λ does: the slower γ move, the more."""
        speed, longest = self.speed(epoch), LONGEST_WAIT * self.epochs
        return max(1.0, TRAVEL / speed if longest * speed > TRAVEL else longest)

    def chatter(self, epoch: Epoch) -> float:
        """How far a γ still jumps about zero; nothing after the last epoch, when OT sees γ as they are."""
        return 0.0 if epoch.epoch == self.epochs else self.pace * epoch.rate * epoch.lam


def steering_of(training: "Training", steps: int) -> Steering | None:
    """How a training with so many steps an epoch steers its λ; None where it has no target.

    >>> from otprune.training.run import Training
    >>> steering_of(Training(target_flops=0.4), steps=781).pace
    10.0
    """
    if training.target_flops is None:
        return None
    # Gradients in one direction add up in the momentum; a soft threshold comes after it.
    pace = 1.0 if training.proximal else 1 / (1 - training.momentum)
    if training.schedule == "cosine":
        decay, ending, left = COSINE_DECAY, COSINE_ENDING, COSINE_LEFT
    else:
        decay, left = min(training.decay_at, default=1.0), LEFT_FOR_LATER
        ending = (1 + min(decay, LATEST_DECAY)) / 2
    return Steering(training.target_flops, training.epochs, steps, decay, ending, round(pace, 6), left)


def flops_share(model: nn.Module, example: Tensor, chatter: float = 0.0) -> float:
    """The FLOPs that OT would keep of a model as it is, over the FLOPs that it has; nothing about it is changed.

    A γ smaller than `chatter` counts as zero: it only jumps about there as long as steps are so large.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 1))
    >>> net[1].weight.data[:2] = 1e-6
    >>> round(flops_share(net, torch.zeros(1, 1, 8, 8)), 2)
    0.52
    """
    devices = [example.device] if example.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        small = prune(model, plan(model, example, _Calmed(chatter)))
        return cost(small, example).flops / cost(model, example).flops


def steered(history: Sequence[Epoch], steering: Steering) -> float:
    """The λ of the next epoch.

    >>> from otprune.training.run import EpochRecord
    >>> late = [EpochRecord(n, 0.1, 1e-4, loss=1.0, accuracy=0.5, flops=1.0) for n in (39, 40)]
    >>> steered(late, Steering(target=0.4, epochs=80, steps=781)) > 1e-4
    True
    """
    last, measured = history[-1], [epoch for epoch in history if epoch.flops is not None]
    if last.flops is None or last.rate == 0:
        return last.lam
    passed = last.epoch - (measured[-2].epoch if len(measured) > 1 else 0)
    error = _error(history, steering) * (history[0].rate / last.rate) ** LATE_GAIN
    change = min(GAIN * error, FASTEST_RISE) if error > 0 else max(BRAKE * GAIN * error, -FASTEST_FALL)
    lam = max(last.lam * math.exp(change * passed / steering.epochs), LEAST * _typical(history))
    return min(lam, _largest(history, steering))


def path(progress: float, start: float, steering: Steering) -> float:
    """The share of FLOPs to be at when so much of the training is done, if it began to fall at `start`.

    >>> steering = Steering(target=0.4, epochs=160, steps=781)
    >>> [round(path(progress, 0.05, steering), 2) for progress in (0.05, 0.25, 0.5, 0.65, 1)]
    [1.0, 0.54, 0.41, 0.4, 0.4]
    """
    decay, early = steering.first_decay, 1 - steering.left
    if progress < decay:
        done = early * _interpolated((progress - start) / (decay - start), EARLY_PATH) if start < progress else 0.0
    else:
        done = _interpolated((progress - decay) / (1 - decay), ((0.0, early), (LATE_ARRIVAL, 1.0)))
    return float(steering.target**done)


def _error(history: Sequence[Epoch], steering: Steering) -> float:
    """How far the log of the share will be above the path once λ has taken effect, by a line through the last ones."""
    last, wait = history[-1], steering.answer(history[-1])
    start = next((epoch.epoch for epoch in history if steering.has_fallen(epoch)), 0)
    if not start and last.epoch < steering.first_decay * steering.epochs:
        return _off_the_pace(last, steering)
    window = max(2, round(WINDOW * steering.epochs))
    near = [epoch for epoch in history[-window - 1 :] if epoch.flops is not None]
    level, slope = _line([epoch.epoch for epoch in near], [math.log(epoch.flops or 1.0) for epoch in near])
    progress = min(1.0, (last.epoch + wait) / steering.epochs)
    return level + slope * wait - math.log(path(progress, start / steering.epochs, steering))


def _off_the_pace(last: Epoch, steering: Steering) -> float:
    """How far λ is, in logarithms, from one at which the first channels arrive in time and not too soon."""
    slowest = -math.log(steering.target) * WAY_TO_ZERO / (FIRST_ARRIVAL * steering.epochs)
    speed = steering.speed(last)
    return math.log(min(max(speed, slowest), SOONER * slowest) / speed)


def _largest(history: Sequence[Epoch], steering: Steering) -> float:
    """The largest λ that does no harm.

    Steps of γ stay small, and none could go from one to zero within an epoch. After the first decay λ stays near what
    it was before, and towards the end it moves γ no more than a little in all: by then no weight makes up for it.
    """
    last = history[-1]
    unit = steering.pace * last.rate  # how far a λ of one moves a γ in a step
    largest = min(SMALL_STEP, 1 / steering.steps) / unit
    if not steering.is_early(last):
        largest = min(largest, LATE_LIMIT * _largest_early(history, steering))
    if last.epoch >= steering.ending * steering.epochs:
        largest = min(largest, LAST_WAY / (steering.epochs * steering.steps * unit))
    return largest


def _largest_early(history: Sequence[Epoch], steering: Steering) -> float:
    """The largest λ before the first decay, or the first of all where the rate decays from the start."""
    return max((epoch.lam for epoch in history if steering.is_early(epoch)), default=history[0].lam)


def _typical(history: Sequence[Epoch]) -> float:
    """The geometric mean of λ."""
    return math.exp(sum(math.log(epoch.lam) for epoch in history) / len(history))


def _line(places: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The value at the last place and the slope of the straight line that fits best."""
    place, value = sum(places) / len(places), sum(values) / len(values)
    spread = sum((x - place) ** 2 for x in places)
    if spread == 0:
        return value, 0.0
    slope = sum((x - place) * (y - value) for x, y in zip(places, values, strict=True)) / spread
    return value + slope * (places[-1] - place), slope


def _interpolated(place: float, knots: Sequence[tuple[float, float]]) -> float:
    """Straight lines between the knots, and constant before and after them."""
    for (left, low), (right, high) in pairwise(knots):
        if place < right:
            return low + (high - low) * max(0.0, place - left) / (right - left)
    return knots[-1][1]


@dataclass(frozen=True)
class _Calmed:
    """OT with every γ that is smaller than `chatter` at zero, where the network has larger ones."""

    chatter: float

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        calmed = {name: gamma.where(gamma.abs() >= self.chatter, 0) for name, gamma in gammas.items()}
        return OptimalThreshold().thresholds(calmed if any(gamma.any() for gamma in calmed.values()) else gammas)

    def describe(self) -> dict[str, Any]:
        return {"rule": "calmed", "chatter": self.chatter}
