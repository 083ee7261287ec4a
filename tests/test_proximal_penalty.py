"""The proximal penalty against steps computed by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD

from otprune.sparsity import ProximalL1
from tests.penalized import LAM, LR, MODES, PULLS, START, batch_norm, net, train


def shrunk(gamma: Tensor, limit: float) -> Tensor:
    return gamma.sign() * (gamma.abs() - limit).clamp(min=0)


@pytest.mark.parametrize("mode", MODES)
def test_proximal_step_is_the_one_computed_by_hand_and_leaves_exact_zeros(mode: dict[str, bool]) -> None:
    layer = batch_norm()
    optimizer = SGD(layer.parameters(), LR, **mode)
    ProximalL1(layer, LAM).attach(optimizer)
    expected = START
    for by in PULLS:
        expected = shrunk(expected - LR * by, LR * LAM)
    trained = train(layer, optimizer)
    torch.testing.assert_close(trained, expected, rtol=1e-12, atol=0)
    assert trained[2] == 0
    assert trained.count_nonzero() == 3


@pytest.mark.parametrize("in_tensors", [False, True])
def test_proximal_limit_is_lr_of_the_group_times_lam_times_the_layer_weight(in_tensors: bool) -> None:
    model = net()
    rate = torch.tensor(0.5, dtype=torch.float64) if in_tensors else 0.5
    groups: list[dict[str, Any]] = [
        {"params": [*model.norm.parameters(), *model.idle_norm.parameters()], "lr": rate},
        {"params": model.other_norm.parameters()},
    ]
    optimizer = SGD(groups, lr=LR)
    ProximalL1(model, LAM, layer_weights={"norm": 3.0, "other_norm": 2.0}).attach(optimizer)
    optimizer.step()
    for layer, limit in ((model.norm, 0.5 * 3), (model.other_norm, LR * 2), (model.idle_norm, 0.5)):
        torch.testing.assert_close(layer.weight.detach(), torch.full((5,), 1 - limit * LAM, dtype=torch.float64))


def test_proximal_follows_a_learning_rate_that_a_scheduler_or_a_loaded_state_changes() -> None:
    layer = batch_norm()
    optimizer = SGD(layer.parameters(), LR)
    ProximalL1(layer, LAM).attach(optimizer)
    other = SGD(layer.parameters(), 2 * LR)
    optimizer.load_state_dict(other.state_dict())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.25)
    optimizer.step()
    scheduler.step()
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), shrunk(START, 2.5 * LR * LAM))
