"""SGD with weight decay, Nesterov momentum and L1 on γ, for lists of tensors: written to be compiled, or in one pass.

Both take the same arguments. `gammas` are the places of the scaling factors among the parameters, and `copies` pairs of
a tensor and the parameter that it follows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Optimization:
    """What a step does besides the gradient: SGD's constants and the kind of penalty."""

    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    proximal: bool = False


def compiled_sgd(
    parameters: list[Tensor],
    momenta: list[Tensor],
    gradients: list[Tensor],
    copies: list[tuple[Tensor, Tensor]],
    gammas: list[int],
    rate: Tensor,
    lam: Tensor,
    optimization: Optimization,
) -> None:
    """As torch's compiler likes it, which makes a few kernels of it all.

    >>> weight, rate, lam = torch.ones(1), torch.tensor(0.1), torch.tensor(0.0)
    >>> compiled_sgd([weight], [torch.zeros(1)], [torch.ones(1)], [], [], rate, lam, Optimization())
    >>> round(weight.item(), 4)
    0.81
    """
    total = list(torch._foreach_mul(parameters, optimization.weight_decay))
    torch._foreach_add_(total, [exact(gradient) for gradient in gradients])
    if not optimization.proximal:
        for index in gammas:
            total[index] += lam * parameters[index].sign()
    torch._foreach_mul_(momenta, optimization.momentum)
    torch._foreach_add_(momenta, total)
    torch._foreach_add_(total, momenta, alpha=optimization.momentum)
    torch._foreach_mul_(total, rate)
    torch._foreach_sub_(parameters, total)
    _soft_threshold(parameters, gammas, rate, lam, optimization)
    if copies:
        torch._foreach_copy_([copied for copied, _ in copies], [parameter for _, parameter in copies])


def one_pass_sgd(
    parameters: list[Tensor],
    momenta: list[Tensor],
    gradients: list[Tensor],
    copies: list[tuple[Tensor, Tensor]],
    gammas: list[int],
    rate: Tensor,
    lam: Tensor,
    optimization: Optimization,
) -> None:
    """By torch's fused kernel, which on a CPU reads and writes everything once and allocates nothing.

    >>> weight, rate, lam = torch.ones(1), torch.tensor(0.1), torch.tensor(0.0)
    >>> one_pass_sgd([weight], [torch.zeros(1)], [torch.ones(1)], [], [], rate, lam, Optimization())
    >>> round(weight.item(), 4)
    0.81
    """
    aligned = [_laid_out_as(p, gradient) for p, gradient in zip(parameters, gradients, strict=True)]
    if not optimization.proximal:
        for index in gammas:
            aligned[index] = aligned[index] + lam * parameters[index].sign()
    torch._fused_sgd_(
        parameters,
        aligned,
        momenta if optimization.momentum else [],
        weight_decay=optimization.weight_decay,
        momentum=optimization.momentum,
        lr=float(rate),
        dampening=0.0,
        nesterov=optimization.momentum > 0,
        maximize=False,
        is_first_step=False,
    )
    _soft_threshold(parameters, gammas, rate, lam, optimization)
    for copied, parameter in copies:
        copied.copy_(parameter)


def exact(tensor: Tensor) -> Tensor:
    """In fp32, unless the model computes in fp64.

    >>> exact(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _soft_threshold(
    parameters: list[Tensor], gammas: list[int], rate: Tensor, lam: Tensor, optimization: Optimization
) -> None:
    if optimization.proximal:
        limit = rate * lam
        for index in gammas:
            parameters[index] -= parameters[index].clamp(-limit, limit)


def _laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The fused kernel goes through memory in order, so a gradient must lie there as its parameter does."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
