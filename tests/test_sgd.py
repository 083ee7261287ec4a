"""All ways to update are one: torch's SGD with Nesterov momentum, with L1 in the gradient or a soft threshold after."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from otprune.training.sgd import Optimization, Trained, sgd_in_one_pass, sgd_one_by_one, sgd_together

RATE, LAM = torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
SHAPES, GAMMAS = ((4, 3, 2, 2), (5,), (6, 5)), {1}


def drawn(seed: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random, dtype=torch.float64) for shape in SHAPES]


def by_torch(steps: int, optimization: Optimization) -> list[Tensor]:
    parameters = [tensor.requires_grad_() for tensor in drawn(0)]
    constants = {"momentum": optimization.momentum, "weight_decay": optimization.weight_decay}
    sgd = torch.optim.SGD(parameters, lr=float(RATE), nesterov=optimization.momentum > 0, **constants)
    for step in range(1, steps + 1):
        for index, (parameter, gradient) in enumerate(zip(parameters, drawn(step), strict=True)):
            penalized = index in GAMMAS and not optimization.proximal
            parameter.grad = gradient + LAM * parameter.detach().sign() if penalized else gradient
        sgd.step()
        if optimization.proximal:
            shrunk = [parameters[index].data for index in GAMMAS]
            for gamma in shrunk:
                gamma.copy_(gamma.sign() * (gamma.abs() - RATE * LAM).clamp(min=0))
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("update", [sgd_together, sgd_one_by_one, sgd_in_one_pass])
@pytest.mark.parametrize(
    "optimization",
    [Optimization(weight_decay=0.01), Optimization(momentum=0.0), Optimization(momentum=0.8, proximal=True)],
)
def test_every_update_is_that_of_torch(update: Callable[..., None], optimization: Optimization) -> None:
    parameters, momenta = drawn(0), [torch.zeros_like(tensor) for tensor in drawn(0)]
    followers = [None, None, torch.zeros(SHAPES[2])]
    for step in range(1, 4):
        columns = zip(parameters, momenta, drawn(step), followers, strict=True)
        update([Trained(*row, index in GAMMAS) for index, row in enumerate(columns)], RATE, LAM, optimization)
    torch.testing.assert_close(parameters, by_torch(3, optimization))
    torch.testing.assert_close(followers[2], parameters[2].float())
