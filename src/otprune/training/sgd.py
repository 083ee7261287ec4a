"""SGD with weight decay, Nesterov momentum and L1 on γ, for many tensors: written to be compiled, or in one pass.

All updates take the same arguments and do the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

LARGE = 100_000  # elements from which on a GPU is busy enough with one tensor


@dataclass(frozen=True)
class Optimization:
    """What a step does besides the gradient: SGD's constants and the kind of penalty."""

    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    proximal: bool = False


class Trained(NamedTuple):
    """A parameter in training; `follower` is a copy of it in another precision, `gamma` says it is a scaling factor.

    >>> Trained(torch.ones(1), torch.zeros(1), torch.ones(1)).gamma
    False
    """

    parameter: Tensor
    momentum: Tensor
    gradient: Tensor
    follower: Tensor | None = None
    gamma: bool = False


def sgd_together(trained: Sequence[Trained], rate: Tensor, lam: Tensor, optimization: Optimization) -> None:
    """As torch's compiler likes it for many small tensors, of which it makes a few kernels.

    >>> weight, rate, lam = torch.ones(1), torch.tensor(0.1), torch.tensor(0.0)
    >>> sgd_together([Trained(weight, torch.zeros(1), torch.ones(1))], rate, lam, Optimization())
    >>> round(weight.item(), 4)
    0.81
    """
    parameters, momenta = [each.parameter for each in trained], [each.momentum for each in trained]
    total = list(torch._foreach_mul(parameters, optimization.weight_decay))
    torch._foreach_add_(total, [exact(each.gradient) for each in trained])
    for index, each in enumerate(trained):
        if each.gamma and not optimization.proximal:
            total[index] += lam * each.parameter.sign()
    torch._foreach_mul_(momenta, optimization.momentum)
    torch._foreach_add_(momenta, total)
    torch._foreach_add_(total, momenta, alpha=optimization.momentum)
    torch._foreach_mul_(total, rate)
    torch._foreach_sub_(parameters, total)
    _soft_threshold(trained, rate, lam, optimization)
    if pairs := [(each.follower, each.parameter) for each in trained if each.follower is not None]:
        torch._foreach_copy_([follower for follower, _ in pairs], [parameter for _, parameter in pairs])


def sgd_one_by_one(trained: Sequence[Trained], rate: Tensor, lam: Tensor, optimization: Optimization) -> None:
    """As torch's compiler likes it for large tensors: a kernel for each, as fast as memory is.

    >>> weight, rate, lam = torch.ones(1), torch.tensor(0.1), torch.tensor(0.0)
    >>> sgd_one_by_one([Trained(weight, torch.zeros(1), torch.ones(1))], rate, lam, Optimization())
    >>> round(weight.item(), 4)
    0.81
    """
    for each in trained:
        total = exact(each.gradient) + optimization.weight_decay * each.parameter
        if each.gamma and not optimization.proximal:
            total = total + lam * each.parameter.sign()
        each.momentum.mul_(optimization.momentum).add_(total)
        each.parameter.sub_((total + optimization.momentum * each.momentum) * rate)
    _soft_threshold(trained, rate, lam, optimization)
    _lead(trained)


def sgd_in_one_pass(trained: Sequence[Trained], rate: Tensor, lam: Tensor, optimization: Optimization) -> None:
    """By torch's fused kernel, which on a CPU reads and writes everything once and allocates nothing.

    >>> weight, rate, lam = torch.ones(1), torch.tensor(0.1), torch.tensor(0.0)
    >>> sgd_in_one_pass([Trained(weight, torch.zeros(1), torch.ones(1))], rate, lam, Optimization())
    >>> round(weight.item(), 4)
    0.81
    """
    gradients = [_laid_out_as(each.parameter, each.gradient) for each in trained]
    for index, each in enumerate(trained):
        if each.gamma and not optimization.proximal:
            gradients[index] = gradients[index] + lam * each.parameter.sign()
    torch._fused_sgd_(
        [each.parameter for each in trained],
        gradients,
        [each.momentum for each in trained] if optimization.momentum else [],
        weight_decay=optimization.weight_decay,
        momentum=optimization.momentum,
        lr=float(rate),
        dampening=0.0,
        nesterov=optimization.momentum > 0,
        maximize=False,
        is_first_step=False,
    )
    _soft_threshold(trained, rate, lam, optimization)
    _lead(trained)


def exact(tensor: Tensor) -> Tensor:
    """In fp32, unless the model computes in fp64.

    >>> exact(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _soft_threshold(trained: Sequence[Trained], rate: Tensor, lam: Tensor, optimization: Optimization) -> None:
    if optimization.proximal:
        limit = rate * lam
        for each in trained:
            if each.gamma:
                each.parameter.sub_(each.parameter.clamp(-limit, limit))


def _lead(trained: Sequence[Trained]) -> None:
    for each in trained:
        if each.follower is not None:
            each.follower.copy_(each.parameter)


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The fused kernel goes through memory in order, so a gradient must lie there as its parameter does."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
