"""The L1 penalty against steps computed by hand, under everything that training does to gradients."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import backward
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from otprune.sparsity import L1Penalty
from tests.penalized import LAM, LR, MODES, PULLS, START, Net, batch_norm, batches, loss_of, net, pull, train


def penalized_pulls(gamma: Tensor) -> Iterator[Tensor]:
    """The gradient of loss + λ·Σ|γ| at each step, read where γ stands by then."""
    for by in PULLS:
        yield by + LAM * gamma.sign()


def sgd_by_hand(momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0) -> Tensor:
    gamma, velocity = START.clone(), torch.zeros_like(START)
    for gradient in penalized_pulls(gamma):
        decayed = gradient + decay * gamma
        velocity = momentum * velocity + decayed
        gamma -= LR * (decayed + momentum * velocity if nesterov else velocity)
    return gamma


def adam_by_hand(decay: float = 0.0, decoupled_decay: float = 0.0) -> Tensor:
    gamma, mean, square = START.clone(), torch.zeros_like(START), torch.zeros_like(START)
    for t, penalized in enumerate(penalized_pulls(gamma), start=1):
        gradient = penalized + decay * gamma
        gamma *= 1 - LR * decoupled_decay
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        gamma -= LR * (mean / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
    return gamma


OPTIMIZERS: list[tuple[Callable[..., Optimizer], dict[str, Any], Tensor]] = [
    (SGD, {}, sgd_by_hand()),
    (SGD, {"momentum": 0.9, "weight_decay": 0.02}, sgd_by_hand(0.9, decay=0.02)),
    (SGD, {"momentum": 0.9, "weight_decay": 0.02, "nesterov": True}, sgd_by_hand(0.9, True, 0.02)),
    (Adam, {"weight_decay": 0.02}, adam_by_hand(decay=0.02)),
    (AdamW, {"weight_decay": 0.02}, adam_by_hand(decoupled_decay=0.02)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("build", "options", "expected"), OPTIMIZERS)
def test_l1_step_is_the_one_computed_by_hand(
    build: Callable[..., Optimizer], options: dict[str, Any], expected: Tensor, mode: dict[str, bool]
) -> None:
    layer = batch_norm()
    optimizer = build(layer.parameters(), lr=LR, **options, **mode)
    L1Penalty(layer, LAM).attach(optimizer)
    torch.testing.assert_close(train(layer, optimizer), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("unscale_first", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("build", "options", "expected"), OPTIMIZERS)
def test_l1_step_is_the_same_under_a_gradient_scaler(
    build: Callable[..., Optimizer],
    options: dict[str, Any],
    expected: Tensor,
    mode: dict[str, bool],
    unscale_first: bool,
) -> None:
    layer = batch_norm().float()
    optimizer = build(layer.parameters(), lr=LR, **options, **mode)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    L1Penalty(layer, LAM).attach(optimizer)
    for by in PULLS:
        optimizer.zero_grad()
        backward(scaler.scale(pull(layer.weight, by)))
        if unscale_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(layer.weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


def sum_of_gammas(model: Net) -> Tensor:
    return torch.cat([model.norm.weight, model.other_norm.weight, model.idle_norm.weight]).abs().sum()


def assert_same_parameters(model: nn.Module, other: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), rtol=1e-10, atol=1e-12, msg=name)


def test_whole_network_trains_as_with_the_penalty_in_the_loss_while_lam_changes_and_gradients_accumulate() -> None:
    model = net()
    reference = copy.deepcopy(model)
    optimizer, reference_optimizer = (SGD(m.parameters(), LR, momentum=0.9) for m in (model, reference))
    penalty = L1Penalty(model, LAM).attach(optimizer)
    for lam in (0.1, 0.0, 0.2):
        penalty.lam = lam
        optimizer.zero_grad()
        reference_optimizer.zero_grad()
        for batch in batches():
            backward(loss_of(model, batch))
            backward(loss_of(reference, batch))
        optimizer.step()
        if lam:
            backward(lam * sum_of_gammas(reference))
        reference_optimizer.step()
    assert_same_parameters(model, reference)
    assert not torch.equal(model.idle_norm.weight, torch.ones_like(model.idle_norm.weight))


@pytest.mark.parametrize("by_keyword", [False, True])
@pytest.mark.parametrize("build", [SGD, LBFGS])
def test_penalty_reaches_gradients_that_a_closure_computes(build: Callable[..., Optimizer], by_keyword: bool) -> None:
    def trained(penalized_by_loss: bool) -> tuple[nn.Module, float]:
        model = net()
        optimizer = build(model.parameters(), lr=LR)
        if not penalized_by_loss:
            L1Penalty(model, LAM).attach(optimizer)

        def closure() -> float:
            optimizer.zero_grad()
            loss = loss_of(model, batches()[0])
            backward(loss)
            if penalized_by_loss:
                backward(LAM * sum_of_gammas(model))
            return loss.item()

        loss = optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
        assert loss is not None
        return model, loss

    (model, loss), (reference, reference_loss) = trained(False), trained(True)
    assert loss == pytest.approx(reference_loss)
    assert_same_parameters(model, reference)
