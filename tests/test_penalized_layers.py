"""What both penalties act on, and when."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.autograd import backward
from torch.optim import SGD, Optimizer

from otprune.errors import PenaltyError
from tests.penalized import LAM, LR, MODES, PENALTIES, PULLS, START, Penalty, batch_norm, net, pull


def moved_by_penalty(model: nn.Module, penalty: Penalty, optimizer: Optimizer) -> set[str]:
    """The parameters that a step without any loss moves: those that the penalty acts on."""
    before = copy.deepcopy(model.state_dict())
    optimizer.zero_grad()
    penalty.attach(optimizer)
    optimizer.step()
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


@PENALTIES
def test_all_batch_norms_with_gammas_are_penalized_and_nothing_else(penalize: type[Penalty]) -> None:
    model = net()
    moved = moved_by_penalty(model, penalize(model, LAM), SGD(model.parameters(), LR))
    assert moved == {"norm.weight", "other_norm.weight", "idle_norm.weight"}


@PENALTIES
def test_only_chosen_layers_are_penalized(penalize: type[Penalty]) -> None:
    model = net()
    assert moved_by_penalty(model, penalize(model, LAM, ["norm"]), SGD(model.parameters(), LR)) == {"norm.weight"}


@PENALTIES
def test_lam_zero_changes_nothing(penalize: type[Penalty]) -> None:
    model = net()
    optimizer = SGD(model.parameters(), LR, weight_decay=0.1)
    assert moved_by_penalty(model, penalize(model, 0), optimizer) == set()


@PENALTIES
def test_frozen_gammas_are_left_alone_until_they_are_trained(penalize: type[Penalty]) -> None:
    model = net()
    model.norm.requires_grad_(False)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], LR)
    penalty = penalize(model, LAM)
    assert "norm.weight" not in moved_by_penalty(model, penalty, optimizer)
    penalty.detach()
    model.norm.requires_grad_(True)
    optimizer.add_param_group({"params": model.norm.parameters()})
    assert "norm.weight" in moved_by_penalty(model, penalty, optimizer)


@PENALTIES
def test_frozen_gammas_that_the_optimizer_owns_are_left_alone(penalize: type[Penalty]) -> None:
    model = net()
    optimizer = SGD(model.parameters(), LR)
    model.norm.weight.requires_grad_(False)
    assert moved_by_penalty(model, penalize(model, LAM), optimizer) == {"other_norm.weight", "idle_norm.weight"}


@PENALTIES
def test_detached_penalty_acts_no_more_and_can_be_attached_again(penalize: type[Penalty]) -> None:
    model = net()
    optimizer = SGD(model.parameters(), LR)
    penalty = penalize(model, LAM).attach(optimizer)
    penalty.detach()
    penalty.detach()
    optimizer.step()
    assert torch.equal(model.norm.weight, torch.ones(5))
    penalty.attach(optimizer)
    optimizer.step()
    assert not torch.equal(model.norm.weight, torch.ones(5))


@PENALTIES
@pytest.mark.parametrize("shared", ["module", "parameter"])
def test_a_gamma_used_twice_is_penalized_once(penalize: type[Penalty], shared: str) -> None:
    first, second = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    second.weight = first.weight
    model = nn.Sequential(first, first if shared == "module" else second)
    optimizer = SGD(model.parameters(), LR)
    penalize(model, LAM).attach(optimizer)
    optimizer.step()
    torch.testing.assert_close(first.weight.detach(), torch.full((2,), 1 - LR * LAM))


@PENALTIES
def test_lam_in_a_tensor_may_change_in_place(penalize: type[Penalty]) -> None:
    lam = torch.tensor(LAM, dtype=torch.float64)
    model = net()
    optimizer = SGD(model.parameters(), LR)
    penalty = penalize(model, lam).attach(optimizer)
    optimizer.step()
    torch.testing.assert_close(model.norm.weight.detach(), torch.full((5,), 1 - LR * LAM, dtype=torch.float64))
    lam.fill_(2 * LAM)
    optimizer.zero_grad()
    optimizer.step()
    torch.testing.assert_close(model.norm.weight.detach(), torch.full((5,), 1 - 3 * LR * LAM, dtype=torch.float64))
    penalty.load_state_dict({"lam": 0.5})
    assert lam == 0.5
    assert penalty.state_dict() == {"lam": 0.5}


@PENALTIES
def test_lam_is_resumed_from_a_state(penalize: type[Penalty]) -> None:
    penalty = penalize(net(), LAM)
    penalty.lam = 0.3
    resumed = penalize(net(), 0.0)
    resumed.load_state_dict(penalty.state_dict())
    assert resumed.lam == 0.3
    for state in ({}, {"lam": -1.0}):
        with pytest.raises(PenaltyError, match="λ"):
            resumed.load_state_dict(state)
    assert resumed.lam == 0.3


@pytest.mark.parametrize("mode", MODES)
@PENALTIES
def test_a_step_that_the_scaler_skips_moves_nothing(penalize: type[Penalty], mode: dict[str, bool]) -> None:
    layer = batch_norm().float()
    optimizer = SGD(layer.parameters(), lr=LR, **mode)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    penalize(layer, LAM).attach(optimizer)
    backward(scaler.scale(pull(layer.weight, torch.full_like(START, math.inf))))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, START.float())
    optimizer.zero_grad()
    backward(scaler.scale(pull(layer.weight, PULLS[0])))
    scaler.step(optimizer)
    assert not torch.equal(layer.weight, START.float())
