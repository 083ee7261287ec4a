"""λ that steers itself: the law on simulated networks, and real trainings that land on their budget."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import otprune as ot
from otprune.errors import ModelError, TrainingError
from otprune.training.data import Dataset, Images, load
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run, Training
from otprune.training.schedule import Schedule, Steps
from otprune.training.steering import LAST_WAY, LEAST, Steering, flops_share, path, steered, steering_of
from tests.unchanged import unchanged

CHANNELS = 400
ALIVE, HELD = 0.02, 0.4


@dataclass(frozen=True)
class Plant:
    """A network as steering sees it: channels that the loss holds up, each with a force of its own.

    The loss pulls a γ towards `HELD` and λ pulls it towards zero, so it settles in between, or dies. Rising takes
    far longer than falling. With a lower learning rate the loss is lower and holds less.
    """

    median_force: float
    spread: float
    loosening: float
    steps: int
    seed: int = 0

    def trained(self, steering: Steering, start: float, rates: Schedule | None = None) -> list[EpochRecord]:
        """A whole training."""
        draw = random.Random(self.seed)
        forces = [self.median_force * math.exp(draw.gauss(0, self.spread)) for _ in range(CHANNELS)]
        gammas, history, lam = [0.5] * CHANNELS, list[EpochRecord](), start
        for epoch in range(steering.epochs):
            rate = (rates or Steps(0.1))(epoch, steering.epochs)
            hold = self.loosening ** min(2.0, -math.log10(rate / 0.1))
            gammas = [self._moved(gamma, rate, lam, hold * force) for gamma, force in zip(gammas, forces, strict=True)]
            share = max(1, sum(gamma > ALIVE for gamma in gammas)) / CHANNELS
            measured = share if steering.measured_after(epoch + 1) else None
            history.append(EpochRecord(epoch + 1, rate, lam, loss=1.0, accuracy=0.5, flops=measured))
            lam = steered(history, steering)
        return history

    def _moved(self, gamma: float, rate: float, lam: float, force: float) -> float:
        settled = HELD * (1 - lam / force)
        speed = 10 * self.steps * rate * force / HELD * (1.0 if settled < gamma else 0.02)
        return max(0.0, settled + (gamma - settled) * math.exp(-speed))


def plant(seed: int) -> Plant:
    """A network of the kind that VGG-14 on CIFAR-10 is: half of its channels go at a λ around 1e-4."""
    draw = random.Random(seed)
    return Plant(10 ** draw.uniform(-4.2, -3.3), draw.uniform(0.6, 1.2), draw.uniform(0.4, 1), steps=781, seed=seed)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6).map(plant), st.floats(0.15, 0.9), st.floats(0.5, 2))
def test_a_simulated_network_lands_near_its_budget(network: Plant, target: float, start: float) -> None:
    history = network.trained(Steering(target, 80, network.steps), start * network.median_force)
    assert history[-1].flops == pytest.approx(target, rel=0.25)


@pytest.mark.parametrize("training", [Training(target_flops=0.5), Training(target_flops=0.5, schedule="cosine")])
def test_simulated_networks_land_within_five_percent_as_a_rule(training: Training) -> None:
    steering, targets = steering_of(replace(training, epochs=80), steps=781), [0.15 + 0.025 * n for n in range(30)]
    assert steering is not None
    runs = [
        plant(n).trained(replace(steering, target=target), plant(n).median_force, training.rates())
        for n, target in enumerate(targets)
    ]
    near = [run[-1].flops == pytest.approx(target, rel=0.05) for run, target in zip(runs, targets, strict=True)]
    assert sum(near) >= 27


def test_steering_knows_the_schedule_and_not_the_steps_that_a_cosine_does_not_take() -> None:
    stepped = steering_of(Training(target_flops=0.5, decay_at=(0.3, 0.6)), steps=781)
    assert stepped == Steering(0.5, 160, 781, decay=0.3, ending=0.65)
    asked = Training(target_flops=0.5, schedule="cosine")
    assert steering_of(asked, 781) == steering_of(replace(asked, decay_at=(0.3, 0.6)), 781)


SHARES = st.lists(st.floats(1e-3, 1.0) | st.none(), min_size=1, max_size=40)


@given(SHARES, st.floats(0.01, 0.99), st.floats(1e-6, 1e-2))
def test_lambda_stays_within_its_bounds_whatever_is_measured(
    shares: Sequence[float | None], target: float, start: float
) -> None:
    steering, history, lam = Steering(target, len(shares), steps=781), list[EpochRecord](), start
    for epoch, share in enumerate(shares):
        rate = Steps(0.1)(epoch, len(shares))
        history.append(EpochRecord(epoch + 1, rate, lam, loss=1.0, accuracy=0.5, flops=share))
        before, lam = lam, steered(history, steering)
        largest = 1 / (781 * steering.pace * rate)
        least = min(LEAST * min(epoch.lam for epoch in history), LAST_WAY / len(shares) * largest)
        if share is None:
            assert lam == before
        else:
            assert 0.999 * least <= lam <= 1.001 * largest


def records(*shares: float | None) -> list[EpochRecord]:
    return [EpochRecord(n, 0.1, 1e-4, loss=1.0, accuracy=0.5, flops=share) for n, share in enumerate(shares, 1)]


def on_the_path(steering: Steering) -> list[float]:
    return [path(n / steering.epochs, 0.0, steering) for n in (1, 2, 3)]


def test_lambda_rises_above_the_path_falls_below_it_and_brakes_what_falls_fast() -> None:
    steering = Steering(target=0.5, epochs=10, steps=781)
    below = [0.9 * share for share in on_the_path(steering)]
    above = [share**0.5 for share in on_the_path(steering)]
    assert steered(records(*above), steering) > 1e-4 > steered(records(*below), steering)
    assert steered(records(0.95, 0.95, 0.95), steering) > 1e-4 > steered(records(0.95, 0.95, 0.6), steering)
    assert steered(records(0.95, 0.95, None), steering) == 1e-4


def test_before_anything_falls_lambda_goes_to_where_channels_fall_in_time() -> None:
    """For a target of 1/e in ten epochs, γ are to go half a unit in one epoch, or up to three times as far."""
    steering = Steering(target=1 / math.e, epochs=10, steps=781)
    for lam, direction in ((1e-5, 1), (1e-3, 0), (1e-2, -1)):
        before = [replace(epoch, lam=lam) for epoch in records(1.0, 1.0)]
        after = steered(before, steering)
        assert (after > lam) - (after < lam) == direction


def test_the_path_ends_at_the_target_and_only_goes_down() -> None:
    for decay in (0.0, 0.3, 0.5, 1.0):
        shares = [path(n / 100, 0.1, Steering(0.2, 100, 781, decay)) for n in range(101)]
        assert shares[0] <= 1 and shares[-1] == pytest.approx(0.2) and shares == sorted(shares, reverse=True)


def test_at_most_eighty_epochs_or_so_are_measured_and_the_last_always_is() -> None:
    for epochs in (1, 5, 80, 159, 160, 333, 1000):
        measured = [n for n in range(1, epochs + 1) if Steering(0.5, epochs, 781).measured_after(n)]
        assert measured[-1] == epochs and min(epochs, 79) <= len(measured) <= 160


def conv_net() -> nn.Module:
    layers = [
        layer
        for read, write in pairwise((1, 32, 32, 64))
        for layer in (nn.Conv2d(read, write, 3, padding=1), nn.BatchNorm2d(write), nn.ReLU())
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    net = nn.Sequential(*layers[:6], nn.MaxPool2d(2), *layers[6:], *head)
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.constant_(norm.weight, 0.5)
    return net


def test_the_share_is_that_of_the_pruned_model_and_the_model_is_left_alone() -> None:
    net, example = conv_net(), torch.zeros(1, 1, 8, 8)
    with torch.no_grad():
        net[1].weight[:20] = 1e-5
        net[4].weight[:10] = 0.03
    with unchanged(net):
        share, calmed = flops_share(net, example), flops_share(net, example, chatter=0.04)
    pruned = ot.prune(net, ot.plan(net, example))
    assert share == ot.cost(pruned, example).flops / ot.cost(net, example).flops
    assert calmed < share < 1
    assert flops_share(net, example, chatter=1.0) == share  # where all of them chatter, none of them does


DIGITS = Training(epochs=30, lam=4e-3, augment=False, target_flops=0.6)


@pytest.mark.parametrize(
    "training",
    [DIGITS, replace(DIGITS, schedule="cosine", lam=4e-2, proximal=True, target_flops=0.3)],
    ids=["in steps", "along a cosine"],
)
def test_a_real_training_lands_on_its_budget(training: Training) -> None:
    torch.manual_seed(0)
    data = load("digits")
    assert isinstance(data, Dataset)
    run = Run(conv_net(), data, training)
    train(run)
    landed = run.history[-1].flops
    assert landed == flops_share(run.model, torch.zeros(1, 1, 8, 8))
    assert landed == pytest.approx(training.target_flops, rel=0.05)
    assert run.history[-1].accuracy > 0.95


def few_images() -> Dataset:
    pixels = torch.randint(256, (64, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    images = Images(pixels, torch.arange(64) % 10)
    return Dataset.of(images, images, tuple("0123456789"))


SHORT = Training(epochs=8, batch=16, lam=1e-3, augment=False, target_flops=0.5)


def short_run(folder: Path | None = None) -> Run:
    torch.manual_seed(0)
    return Run(conv_net(), few_images(), SHORT, folder)


def test_a_resumed_run_steers_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    undisturbed = short_run()
    train(undisturbed)
    assert len({epoch.lam for epoch in undisturbed.history}) > 3
    broken_off = short_run(tmp_path)
    for _ in range(3):
        broken_off.begin_epoch()
        while not broken_off.epoch_done:
            broken_off.advance()
        broken_off.end_epoch()
    broken_off.save()
    resumed = short_run(tmp_path)
    assert resumed.epoch == 3 and resumed.lam == undisturbed.history[3].lam
    train(resumed)
    assert resumed.history == undisturbed.history
    for ours, theirs in zip(resumed.model.parameters(), undisturbed.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_measuring_does_not_disturb_the_training() -> None:
    """With a λ that happens not to move, a steered run is the run without steering."""
    steered_run, plain = short_run(), Run(conv_net(), few_images(), replace(SHORT, target_flops=None))
    plain.model.load_state_dict(steered_run.model.state_dict())
    for run in (steered_run, plain):
        run.begin_epoch()
        while not run.epoch_done:
            run.advance()
        run.end_epoch()
    assert plain.history[0] == replace(steered_run.history[0], flops=None)
    for ours, theirs in zip(steered_run.model.state_dict().values(), plain.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_a_target_that_is_no_share_is_refused(target: float) -> None:
    with pytest.raises(TrainingError, match="target_flops must lie between 0 and 1"):
        Training(target_flops=target)


def test_a_lambda_of_zero_cannot_be_steered() -> None:
    with pytest.raises(TrainingError, match="lam and rate must be above 0 where target_flops is given"):
        Training(lam=0.0, target_flops=0.5)


def test_a_model_that_cannot_be_measured_is_refused_before_it_is_trained() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(ModelError, match="no batch norm"):
        Run(net, few_images(), SHORT)
