"""Small networks, images and trainings of a few steps, by otprune and by a plain loop."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import otprune as ot
from otprune.training.data.images import Images
from otprune.training.step import Optimization, Step
from tests.checking import MaskRule, shrink

BATCH, STEPS, LEFT_OVER, CLASSES = 16, 4, 6, 3


MEAN, STD = torch.tensor([0.4]), torch.tensor([0.3])


class Phase(NamedTuple):
    """An epoch's learning rate and λ."""

    rate: float
    lam: float


class Outcome(NamedTuple):
    """Everything a training leaves behind."""

    tensors: dict[str, Tensor]
    momenta: list[Tensor]
    losses: list[float]
    hits: list[int]


def images(seed: int, count: int = BATCH * STEPS + LEFT_OVER) -> Images:
    """Noise with a bright stripe whose place is the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    pixels = torch.randint(130, (count, 1, 9, 9), generator=generator)
    pixels[torch.arange(count), :, 1 + 3 * labels] += 120
    return Images(pixels.to(torch.uint8), labels)


def vgg(widths: tuple[int, ...] = (8, 12, 10)) -> nn.Sequential:
    """Convs with biases, batch norms and pools, as VGG has them."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, width in zip((1, *widths), widths, strict=False):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
        nn.init.uniform_(layers[-3].weight, 0.3, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


def odd_vgg() -> nn.Module:
    """A pruned VGG whose channels are 13, 7 and 11."""
    model = vgg((16, 16, 16))
    shrink(model, {"1": [0, 3, 9], "5": list(range(9)), "9": [1, 2, 5, 10, 15]})
    small = ot.prune(model, ot.plan(model, torch.zeros(1, 1, 9, 9), MaskRule()))
    assert [module.num_features for module in small.modules() if isinstance(module, nn.BatchNorm2d)] == [13, 7, 11]
    return small


def stepped(model: nn.Module, phases: list[Phase], optimization: Optimization) -> Outcome:
    step = Step(model, MEAN, STD, BATCH, optimization)
    epochs = []
    for number, phase in enumerate(phases):
        drawn = images(number)
        device = step.device
        step.begin(*phase)
        step.load(drawn.pixels.to(device), drawn.labels.to(device))
        for _ in range(STEPS):
            step()
        epochs.append(step.sums())
    assert {(epoch.steps, epoch.failed) for epoch in epochs} == {(STEPS, -1)}
    return Outcome(model.state_dict(), step.momenta, [epoch.loss for epoch in epochs], [epoch.hits for epoch in epochs])


def _momentum(optimizer: torch.optim.Optimizer, parameter: Tensor) -> Tensor:
    """What was never trained has none."""
    found: Tensor = optimizer.state[parameter].get("momentum_buffer", torch.zeros_like(parameter))
    return found


def plain(model: nn.Module, phases: list[Phase], optimization: Optimization) -> Outcome:
    """The loop that everyone writes, in the model's own precision."""
    own = list(model.parameters())
    constants = {"momentum": optimization.momentum, "weight_decay": optimization.weight_decay}
    optimizer = torch.optim.SGD(own, lr=1.0, nesterov=True, **constants)
    penalty = (ot.ProximalL1 if optimization.proximal else ot.L1Penalty)(model, lam=0.0).attach(optimizer)
    losses, hits = [0.0] * len(phases), [0] * len(phases)
    mean, std = MEAN.to(own[0]), STD.to(own[0])
    for number, (rate, lam) in enumerate(phases):
        drawn = images(number)
        optimizer.param_groups[0]["lr"], penalty.lam = rate, lam
        batches = zip(drawn.pixels.to(own[0]).split(BATCH), drawn.labels.to(own[0].device).split(BATCH), strict=True)
        for pixels, labels in list(batches)[:STEPS]:
            outputs = model((pixels / 255 - mean) / std)
            loss = F.cross_entropy(outputs, labels, label_smoothing=optimization.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[number] += loss.item() * BATCH
            hits[number] += int((outputs.argmax(1) == labels).sum())
    return Outcome(model.state_dict(), [_momentum(optimizer, p) for p in own], losses, hits)


def assert_close(found: Outcome, expected: Outcome, tolerance: float) -> None:
    torch.testing.assert_close(found.tensors, expected.tensors, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found.momenta, expected.momenta, rtol=tolerance, atol=tolerance)
    assert found.losses == pytest.approx(expected.losses, rel=tolerance)
    assert found.hits == expected.hits


L1 = [Phase(0.05, 0.02), Phase(0.05, 0.04), Phase(0.005, 0.04), Phase(0.005, 0.0)]


PROXIMAL = [Phase(0.05, 2.0), Phase(0.05, 1.0), Phase(0.01, 1.0)]
