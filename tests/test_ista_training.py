"""Training by ISTA: each step is what ProximalL1 makes of plain SGD, and a killed run goes on as if it had not been."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import otprune as ot
from otprune import models
from otprune.errors import TrainingError
from otprune.ista import layer_penalties, untied
from otprune.training import data as datasets
from otprune.training import loop
from otprune.training.ista import IstaRun, IstaStep
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run, Training
from otprune.training.sgd import Optimization
from tests.gpu import GPU
from tests.small_runs import assert_same_weights
from tests.small_runs import net as chain

EXAMPLE = torch.zeros(1, 1, 8, 8)
PLAIN = Training(epochs=2, lam=0.2, momentum=0.0, decay_at=(), augment=False)


def net() -> nn.Module:
    torch.manual_seed(0)
    return models.digits_net()


def batches() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.rand(12, 1, 8, 8, generator=draw, dtype=torch.float64), torch.randint(10, (12,), generator=draw)


def test_steps_are_those_of_proximal_l1_and_plain_sgd() -> None:
    ours, theirs = net().double(), net().double()
    weights = layer_penalties(ours, EXAMPLE.double())
    pixels, labels = batches()
    step = IstaStep(
        ours, torch.zeros(1), torch.ones(1), 4, Optimization(0.0, 5e-4), layers=untied(ours, EXAMPLE.double())
    )
    step.weights = {name: weights[name] for name in step.weights}
    step.begin(rate=0.1, lam=0.5)
    step.load(pixels, labels)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, weight_decay=5e-4)
    layers = untied(theirs, EXAMPLE.double())
    ot.ProximalL1(theirs, 0.5, layers=layers, layer_weights={name: weights[name] for name in layers}).attach(optimizer)
    for start in range(0, len(pixels), 4):
        step()
        optimizer.zero_grad()
        F.cross_entropy(theirs(pixels[start : start + 4]), labels[start : start + 4]).backward()
        optimizer.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert not torch.equal(ours.get_parameter("fc.weight"), net().double().get_parameter("fc.weight"))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_only_channels_that_no_sum_ties_are_driven_to_zero(device: str) -> None:
    model = net().to(device)
    train(IstaRun(model, datasets.load("digits"), PLAIN))
    zeros = {name: int((m.weight == 0).sum()) for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    inside = untied(model, EXAMPLE.to(device))
    assert inside and sum(zeros[name] for name in inside) > 0
    assert all(count == 0 for name, count in zeros.items() if name not in inside)


def test_a_run_that_was_broken_off_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    data, whole, broken = datasets.load("digits"), net(), net()
    train(IstaRun(whole, data, PLAIN))

    def stop(run: Run, epoch: EpochRecord) -> None:
        run.save()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(IstaRun(broken, data, PLAIN, tmp_path), stop)
    again = net()
    train(IstaRun(again, data, PLAIN, tmp_path))
    assert_same_weights(again, whole)


def test_inside_an_epoch_too_it_goes_on_with_the_penalties_of_the_epochs_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "TELL_EVERY_SECONDS", 0)
    data, training = datasets.load("digits"), replace(PLAIN, lam=0.08)
    torch.manual_seed(0)
    whole, broken, again = (chain() for _ in range(3))
    for model in (broken, again):
        model.load_state_dict(whole.state_dict())
    train(IstaRun(whole, data, training))

    def stop(run: Run) -> None:
        if (run.epoch, run.position) == (1, 12):
            run.save()
            raise KeyboardInterrupt

    started = IstaRun(broken, data, training, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(started, moved=stop)
    assert layer_penalties(broken, EXAMPLE) != started.step.weights  # or it could not tell
    train(IstaRun(again, data, training, tmp_path))
    assert_same_weights(again, whole)


def test_a_layer_that_has_lost_everything_keeps_one_channel_and_can_be_pruned() -> None:
    model = net()
    train(IstaRun(model, datasets.load("digits"), Training(epochs=1, lam=5, momentum=0, decay_at=(), augment=False)))
    assert all(int((model.get_submodule(name).weight != 0).sum()) == 1 for name in untied(model, EXAMPLE))
    found = {layer.name: len(layer.kept) for layer in ot.plan(model, EXAMPLE, ot.OptimalThreshold(1e-12)).layers}
    assert all(found[name] == 1 for name in untied(model, EXAMPLE))


def test_momentum_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"set momentum to 0, not 0\.9"):
        IstaRun(net(), datasets.load("digits"), Training(augment=False))
