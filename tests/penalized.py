"""A batch norm whose gradients are known, and a small network, for tests of the penalties."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import backward
from torch.optim import Optimizer

from otprune.sparsity import L1Penalty, ProximalL1

LR, LAM = 0.1, 0.05
# One pull on γ for each step: the loss is γ·pull, so its gradient is known without a network.
PULLS = torch.tensor([[0.3, -0.2, 0.0, 1.0], [-0.1, 0.4, 0.02, -1.0], [0.2, 0.2, -0.01, 0.5]], dtype=torch.float64)
START = torch.tensor([0.8, -0.6, 0.003, 0.0], dtype=torch.float64)
MODES = [{"foreach": False}, {"foreach": True}, {"fused": True}]
Penalty = L1Penalty | ProximalL1
PENALTIES = pytest.mark.parametrize("penalize", [L1Penalty, ProximalL1])


def batch_norm() -> nn.BatchNorm1d:
    """Scaling factors of every sort: large, negative, small and zero."""
    layer = nn.BatchNorm1d(len(START), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(START)
    return layer


def pull(gamma: Tensor, by: Tensor) -> Tensor:
    """A loss whose gradient is `by`."""
    return (gamma * by.to(gamma.dtype)).sum()


def train(layer: nn.BatchNorm1d, optimizer: Optimizer) -> Tensor:
    """The scaling factors after a step for each pull."""
    for by in PULLS:
        optimizer.zero_grad()
        backward(pull(layer.weight, by))
        optimizer.step()
    return layer.weight.detach()


class Net(nn.Module):
    """Two penalized layers, one without γ, one that the loss does not reach."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.norm = nn.BatchNorm1d(5)
        self.second = nn.Linear(5, 5)
        self.other_norm = nn.BatchNorm1d(5)
        self.plain_norm = nn.BatchNorm1d(5, affine=False)
        self.idle_norm = nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return torch.relu(self.plain_norm(self.other_norm(self.second(hidden))))


def net() -> Net:
    """The network in float64, with weights that are always the same."""
    torch.manual_seed(0)
    return Net().double()


def batches(number: int = 4) -> list[Tensor]:
    """Inputs of the network, always the same."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(number)]


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """A loss that weighs the outputs differently."""
    output: Tensor = model(batch)
    return output.pow(2).mul(torch.arange(5)).mean()
