"""The training step of one process among several: gradients are averaged over all of them, then all update alike.

DistributedDataParallel is around the module that runs forward. The penalty is no part of what is averaged: it comes
with the update, once, from weights that are the same everywhere. So are loss and hits, which are summed over the
processes.

On GPUs activations are bf16 and updates fp32, as for one process. The forward pass is compiled as torch splits it for
DistributedDataParallel, so that gradients travel while others are computed. The step is not captured as a CUDA graph,
and gradients of weights are not computed aside, since they would be sent before they are finished. In bf16, gradients
are also averaged in bf16. Convolutions are as wide as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from otprune.errors import TrainingError
from otprune.tensors import named_tensors
from otprune.training.batch_loss import Teacher
from otprune.training.chance import Chance
from otprune.training.distributed import Group
from otprune.training.sending import send, trained_together
from otprune.training.sgd import Optimization
from otprune.training.step import Step
from otprune.training.sync_norm import synchronize
from otprune.training.working_copy import shared_copy


class GroupStep(Step):
    """A model in training by a group, which must have been joined; one call is this process's share of a batch.

    `batch` is what all processes have together. With `synchronized`, batch norms go by the statistics of whole batches;
    without, the running statistics are those of the leader's share. All start from the leader's weights.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> step = GroupStep(net, torch.zeros(1), torch.ones(1), batch=2, group=Group(rank=0, size=1))
    >>> step.begin(rate=0.1, lam=0.0)
    >>> step.load(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    >>> step(), step()
    (None, None)
    >>> step.sums().hits
    2
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        model: nn.Module,
        mean: Tensor,
        std: Tensor,
        batch: int,
        optimization: Optimization | None = None,
        teacher: Teacher | None = None,
        *,
        group: Group,
        synchronized: bool = False,
    ) -> None:
        super().__init__(model, mean, std, group.share.size(batch), optimization, teacher)
        self.stream = None  # nothing is captured, so all is sent to the device in the order in which it happens
        self._chance = Chance(self.device, captured=False)
        if synchronized:
            self._worker = self._worker if self._on_gpu else shared_copy(model)
            synchronize(self._worker, self._on_gpu)
        if self._on_gpu:
            self._worker.compile(dynamic=False)
        devices = [self.device] if self._on_gpu else None
        self._worker = trained_together(self._worker, devices)
        # To start alike. On a GPU the module inside has copies of the weights, which follow the model's.
        send(named_tensors(model).values())

    def load(self, pixels: Tensor, labels: Tensor, done: int = 0) -> None:
        """Put this process's images of the next steps in place."""
        super().load(pixels, labels, done)
        if self._on_gpu:
            self._hold_until_copied(pixels, labels, torch.cuda.current_stream(self.device))

    def _runner(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function  # the module inside is compiled by itself

    def _gradients(self, loss: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
        """Those of the mean loss over all processes."""
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if len(gradients) < len(parameters):
            raise TrainingError(
                f"{len(parameters) - len(gradients)} parameters have no part in the loss, and several processes cannot "
                f"train such a model: turn them off with requires_grad_(False)"
            )
        for parameter in parameters:
            parameter.grad = None
        return gradients

    def _outcome(self, loss: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
        """The sums over all processes: what they come to times the size of a share is what a batch comes to."""
        both = torch.stack([loss.double(), hits.double()])
        dist.all_reduce(both)
        return both[0], both[1]
