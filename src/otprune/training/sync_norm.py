"""Batch norm by the statistics of the whole batch where several processes have a part of it each.

torch's SyncBatchNorm does so on GPUs and nowhere else; `SyncNorm` does the same on CPUs.
"""

import functools
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.errors import TrainingError


class SyncNorm(_BatchNorm):
    """A batch norm that in training goes by mean and variance over all processes, which have equally many images.

    In evaluation mode, and where there is no group of processes, it is a batch norm like any other.

    >>> SyncNorm(1)(torch.tensor([[[-1.0]], [[1.0]]])).flatten()
    tensor([-1.0000,  1.0000], grad_fn=<...>)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize; in training, the running statistics follow those of all images."""
        if not (self.training and dist.is_initialized()):
            return super().forward(input)
        normalized, mean, variance = _Normalize.apply(input, self.weight, self.bias, self.eps)
        self._follow(mean, variance)
        return cast(Tensor, normalized)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions: the layer in whose place it is had its own."""

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        pace = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.mul_(1 - pace).add_(mean, alpha=pace)
        self.running_var.mul_(1 - pace).add_(variance, alpha=pace)


def synchronize(worker: nn.Module, on_gpu: bool) -> None:
    """Let the batch norms of a model go by whole batches from now on; all else about them stays.

    >>> net = nn.Sequential(nn.BatchNorm2d(2))
    >>> synchronize(net, on_gpu=False)
    >>> type(net[0]).__name__
    'SyncNorm'
    """
    for name, module in worker.named_modules():
        if isinstance(module, _BatchNorm):
            _require_plain(name, module)
            # The class alone, since a pruned one may have hooks that choose its channels.
            module.__class__ = _between_compiled_pieces() if on_gpu else SyncNorm
            setattr(module, "process_group", None)  # noqa: B010, which a batch norm of a process has not
            if module.running_mean is not None and module.num_batches_tracked is None:
                module.num_batches_tracked = torch.zeros((), dtype=torch.int64, device=module.running_mean.device)


@functools.cache
def _between_compiled_pieces() -> type[nn.SyncBatchNorm]:
    """torch's own. What it tells the other processes is not the compiler's business."""

    class SyncBatchNorm(nn.SyncBatchNorm):
        forward = torch.compiler.disable(nn.SyncBatchNorm.forward)

    return SyncBatchNorm


def _require_plain(name: str, module: _BatchNorm) -> None:
    """One that does more than normalize would stop doing it."""
    if type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
        raise TrainingError(
            f"{name} is a {type(module).__name__}, which normalizes in a way of its own: it cannot go by the "
            f"statistics of all processes. Train without --sync-batch-norm."
        )


class _Normalize(torch.autograd.Function):
    """Normalize by the statistics of all processes; return those, too, the variance without bias.

    Sums are taken in fp64, as torch's own batch norm takes them on a CPU.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = input.numel() // input.shape[1] * dist.get_world_size()
        mean = _total(_sum(input)) / count
        centred = input - _per_channel(mean, input)
        variance = _total(_sum(centred.square())) / count
        scale = (variance + eps).rsqrt()
        ctx.save_for_backward(centred, weight, bias, scale)
        output = centred * _per_channel(scale if weight is None else scale * weight, input)
        output = output if bias is None else output + _per_channel(bias, input)
        statistics = mean.to(input.dtype), (variance * count / max(count - 1, 1)).to(input.dtype)
        ctx.mark_non_differentiable(*statistics)
        return output, *statistics

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the sum of all processes' losses; that of weight and bias is this process's part of it."""
        gradient, (centred, weight, bias, scale) = gradients[0], ctx.saved_tensors
        own = torch.stack([_sum(gradient), _sum(gradient * centred) * scale])
        of_bias, of_weight = _total(own.clone()) * len(scale) / centred.numel() / dist.get_world_size()
        rest = gradient - _per_channel(of_bias, centred) - centred * _per_channel(scale * of_weight, centred)
        of_input = rest * _per_channel(scale if weight is None else scale * weight, centred)
        kind = centred.dtype
        return of_input, None if weight is None else own[1].to(kind), None if bias is None else own[0].to(kind), None


def _sum(tensor: Tensor) -> Tensor:
    return tensor.sum([dim for dim in range(tensor.dim()) if dim != 1], dtype=torch.float64)


def _total(own: Tensor) -> Tensor:
    dist.all_reduce(own)
    return own


def _per_channel(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.to(like.dtype).view([-1 if dim == 1 else 1 for dim in range(like.dim())])
