"""Penalties that make no sense, or that the optimizer could not apply."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import otprune as ot
from otprune.errors import PenaltyError
from otprune.sparsity import ProximalL1
from tests.penalized import LAM, LR, PENALTIES, Penalty, net
from tests.refusals import busy, refused
from tests.toy_nets import Sequential, make


@PENALTIES
@pytest.mark.parametrize("lam", [-1e-4, math.nan, math.inf, torch.tensor(-1.0), torch.ones(2), torch.tensor(1)])
def test_impossible_lam_is_refused_and_the_old_one_kept(penalize: type[Penalty], lam: float | Tensor) -> None:
    with pytest.raises(PenaltyError, match="λ must be"):
        penalize(net(), lam)
    penalty = penalize(net(), LAM)
    with pytest.raises(PenaltyError, match="λ must be"):
        penalty.lam = lam
    assert penalty.lam == LAM


@pytest.mark.parametrize("lam", [-1e-4, math.nan, math.inf, torch.tensor(-1.0), torch.tensor(math.nan)])
@pytest.mark.parametrize("penalty", [ot.L1Penalty, ot.ProximalL1])
def test_a_penalty_that_is_negative_or_no_number(penalty: Any, lam: Any) -> None:
    model = busy(make(Sequential))
    refused(
        PenaltyError, "λ must be finite and not negative", repr(float(lam)), "1e-4",
        models=(model,), call=lambda: penalty(model, lam=lam),
    )  # fmt: skip
    working = penalty(model, lam=1e-4)
    with pytest.raises(PenaltyError):
        working.lam = lam
    assert working.lam == 1e-4


@PENALTIES
def test_model_without_gammas_is_refused(penalize: type[Penalty]) -> None:
    for model in (nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False), nn.InstanceNorm1d(2, affine=True)):
        with pytest.raises(PenaltyError, match="no batch norm"):
            penalize(model, LAM)


@PENALTIES
def test_layers_that_are_not_there_are_refused_with_the_nearest_ones(penalize: type[Penalty]) -> None:
    for name in ("nrom", "first", "plain_norm"):
        with pytest.raises(PenaltyError, match=rf"'{name}' is no batch norm.*it has .*norm"):
            penalize(net(), LAM, [name])
    with pytest.raises(PenaltyError, match="no layer was chosen"):
        penalize(net(), LAM, [])


@PENALTIES
def test_gamma_that_the_optimizer_does_not_own_is_refused_by_name(penalize: type[Penalty]) -> None:
    model = net()
    optimizer = SGD([*model.norm.parameters(), *model.idle_norm.parameters()], LR)
    penalty = penalize(model, LAM)
    with pytest.raises(PenaltyError, match=r"'other_norm'.*no parameter group"):
        penalty.attach(optimizer)
    optimizer.step()
    assert torch.equal(model.norm.weight, torch.ones(5))


@PENALTIES
def test_attaching_twice_is_refused(penalize: type[Penalty]) -> None:
    model = net()
    optimizer = SGD(model.parameters(), LR)
    penalty = penalize(model, LAM).attach(optimizer)
    with pytest.raises(PenaltyError, match="attached to an optimizer already"):
        penalty.attach(optimizer)


@pytest.mark.parametrize(("weights", "message"), [({"nrom": 1.0}, "'nrom' is no"), ({"norm": -1.0}, "'norm': λ_l")])
def test_impossible_layer_weights_are_refused(weights: dict[str, float], message: str) -> None:
    with pytest.raises(PenaltyError, match=message):
        ProximalL1(net(), LAM, layer_weights=weights)
