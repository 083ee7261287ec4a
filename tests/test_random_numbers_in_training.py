"""What a model draws at random in training is its own, alone and beside others."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from otprune.training.data.images import Dataset
from otprune.training.loop import train, train_together
from otprune.training.run import Run, Training
from tests.gpu import GPU
from tests.trained_steps import BATCH, CLASSES, images, vgg


class Dropping(nn.Module):
    """A model with random numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.dropout, self.head = vgg()[:-1], nn.Dropout(0.3), vgg()[-1]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.dropout(self.body(x)))
        return scores


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("build", [vgg, Dropping])
def test_side_by_side_each_run_is_what_it_is_alone(build: Callable[[], nn.Module], device: str) -> None:
    data = Dataset.of(images(0), images(1), ("a", "b", "c"))
    trainings = [
        Training(epochs=2, batch=BATCH, lam=1e-3),
        Training(epochs=1, batch=8, lam=1e-2, seed=1, augment=False),
        Training(epochs=3, batch=BATCH, lam=1e-3, proximal=True, label_smoothing=0.1),
    ]
    together, alone = ([Run(build().to(device), data, training) for training in trainings] for _ in range(2))
    train_together(together)
    for run in alone:
        train(run)
    noise = {"rtol": 0, "atol": 0} if device == "cpu" else {"rtol": 0.02, "atol": 0.02}
    for left, right in zip(together, alone, strict=True):
        losses = ([epoch.loss for epoch in run.history] for run in (left, right))
        torch.testing.assert_close(*losses, **noise)
        assert len(left.history) == left.training.epochs
        torch.testing.assert_close(dict(left._tensors()), dict(right._tensors()), **noise)
    assert len({run.history[0].loss for run in together}) == 3


def dropout_run(device: str) -> Run:
    """Images and weights stay the same, so what differs from step to step is what dropout drops."""
    one = images(0)[torch.zeros(4, dtype=torch.int64)]
    same = Dataset.of(one, one, ("a", "b", "c"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(81, CLASSES)).to(device)
    return Run(model, same, Training(epochs=2, batch=1, rate=0.0, augment=False))


def losses_step_by_step(run: Run) -> list[float]:
    losses = []
    for _ in range(run.training.epochs):
        run.begin_epoch()
        for _ in range(run.steps):
            before = run.step.sums().loss
            run.advance()
            losses.append(round(run.step.sums().loss - before, 6))
        run.end_epoch()
    return losses


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_every_step_draws_random_numbers_of_its_own_and_leaves_others_alone(device: str) -> None:
    run, again = dropout_run(device), dropout_run(device)
    state = torch.get_rng_state()
    losses = losses_step_by_step(run)
    assert len(set(losses)) == 8
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3, device=device)
    assert losses_step_by_step(again) == losses
