"""The penalties against steps computed by hand, under everything that training does to gradients."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import backward
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from otprune.errors import PenaltyError
from otprune.sparsity import L1Penalty, ProximalL1

LR, LAM = 0.1, 0.05
# One pull on γ for each step: the loss is γ·pull, so its gradient is known without a network.
PULLS = torch.tensor([[0.3, -0.2, 0.0, 1.0], [-0.1, 0.4, 0.02, -1.0], [0.2, 0.2, -0.01, 0.5]], dtype=torch.float64)
START = torch.tensor([0.8, -0.6, 0.003, 0.0], dtype=torch.float64)
Penalty = L1Penalty | ProximalL1


def batch_norm() -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(len(START), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(START)
    return layer


def pull(gamma: Tensor, by: Tensor) -> Tensor:
    return (gamma * by.to(gamma.dtype)).sum()


def train(layer: nn.BatchNorm1d, optimizer: Optimizer) -> Tensor:
    for by in PULLS:
        optimizer.zero_grad()
        backward(pull(layer.weight, by))
        optimizer.step()
    return layer.weight.detach()


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


MODES = [{"foreach": False}, {"foreach": True}, {"fused": True}]
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("penalize", [L1Penalty, ProximalL1])
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
    torch.manual_seed(0)
    return Net().double()


def batches(number: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(number)]


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    output: Tensor = model(batch)
    return output.pow(2).mul(torch.arange(5)).mean()


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


def moved_by_penalty(model: nn.Module, penalty: Penalty, optimizer: Optimizer) -> set[str]:
    """The parameters that a step without any loss moves: those that the penalty acts on."""
    before = copy.deepcopy(model.state_dict())
    optimizer.zero_grad()
    penalty.attach(optimizer)
    optimizer.step()
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


PENALTIES = pytest.mark.parametrize("penalize", [L1Penalty, ProximalL1])


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


@PENALTIES
@pytest.mark.parametrize("lam", [-1e-4, math.nan, math.inf, torch.tensor(-1.0), torch.ones(2), torch.tensor(1)])
def test_impossible_lam_is_refused_and_the_old_one_kept(penalize: type[Penalty], lam: float | Tensor) -> None:
    with pytest.raises(PenaltyError, match="λ must be"):
        penalize(net(), lam)
    penalty = penalize(net(), LAM)
    with pytest.raises(PenaltyError, match="λ must be"):
        penalty.lam = lam
    assert penalty.lam == LAM


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
