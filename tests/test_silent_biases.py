"""Biases that the batch norm behind them subtracts again: which they are, and that nothing depends on them."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from otprune.training.silent_biases import silent_biases


class Twice(nn.Module):
    """What the conv writes is read by a batch norm and by a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        scores: Tensor = self.head(F.relu(self.bn(y)) + y)
        return scores


class Shared(nn.Module):
    """One conv before two batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1)
        self.first, self.second = nn.BatchNorm2d(2), nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.second(self.conv(self.first(self.conv(x)))))
        return scores


class Frozen(nn.BatchNorm2d):
    """Stays in evaluation mode."""

    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


def net(norm: nn.Module | None = None, between: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), between or nn.Identity(), norm or nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (net(), {"0.bias": "2.running_mean", "5.bias": "6.running_mean"}),
        (net(between=nn.ReLU()), {"5.bias": "6.running_mean"}),
        (net(norm=Frozen(4)), {"5.bias": "6.running_mean"}),
        (net(norm=nn.BatchNorm2d(4, track_running_stats=False)), {"5.bias": "6.running_mean"}),
        (Twice(), {}),
        (Shared(), {}),
    ],
    ids=["every", "an operator between", "a frozen norm", "no statistics", "a second reader", "a shared conv"],
)
def test_only_biases_that_nothing_but_a_batch_norm_in_training_reads_are_silent(
    model: nn.Module, expected: dict[str, str]
) -> None:
    assert silent_biases(model.train(), torch.zeros(2, 2, 6, 6)) == expected


def test_without_them_the_model_trains_and_computes_as_before() -> None:
    """In float64: their gradient is zero, and with the running mean less the bias the outputs stay."""
    model = net().double().train()
    biases = silent_biases(model, torch.zeros(2, 2, 6, 6, dtype=torch.float64))
    without, x = copy.deepcopy(model), torch.randn(8, 2, 6, 6, dtype=torch.float64)
    tensors = dict(without.named_parameters()) | dict(without.named_buffers())
    with torch.no_grad():
        for bias, mean in biases.items():
            tensors[mean] -= tensors[bias]
            tensors[bias].zero_()
    torch.testing.assert_close(without.eval()(x), model.eval()(x), rtol=1e-12, atol=1e-12)
    losses = [F.cross_entropy(each.train()(x), torch.arange(8) % 2) for each in (model, without)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    gradients = dict(zip(biases, torch.autograd.grad(losses[0], [model.get_parameter(b) for b in biases]), strict=True))
    assert max(float(gradient.abs().max()) for gradient in gradients.values()) < 1e-15
    torch.testing.assert_close(without.eval()(x), model.eval()(x), rtol=1e-12, atol=1e-12)
