"""A model as a GPU runs it in training: convolutions in bf16 and channels-last, everything else shared with it."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.tensors import named_tensors


def working_copy(model: nn.Module, parameters: Sequence[nn.Parameter]) -> tuple[nn.Module, list[nn.Parameter]]:
    """The copy, and what it has in place of some parameters: batch norms' own and all buffers are the model's.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    >>> worker, (weight, gamma) = working_copy(net, [net[0].weight, net[1].weight])
    >>> weight.dtype, gamma is net[1].weight
    (torch.bfloat16, True)
    """
    memo = _shared(model)
    norms = {id(p) for m in model.modules() if isinstance(m, _BatchNorm) for p in m.parameters()}
    for parameter in model.parameters():
        if id(parameter) not in norms:
            memo[id(parameter)] = _half(parameter)
    worker: nn.Module = copy.deepcopy(model, memo)
    for module in worker.modules():
        if isinstance(module, _BatchNorm) and module.momentum is not None:
            module.num_batches_tracked = None  # a kernel for each layer and step, and only read without momentum
    return worker, [memo[id(parameter)] for parameter in parameters]


def shared_copy(model: nn.Module) -> nn.Module:
    """A copy whose layers can be replaced: parameters and buffers are the model's own.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3))
    >>> shared_copy(net)[0].weight is net[0].weight
    True
    """
    worker: nn.Module = copy.deepcopy(model, _shared(model))
    return worker


def _shared(model: nn.Module) -> dict[int, Any]:
    """What a copy is not to copy."""
    return {id(tensor): tensor for tensor in named_tensors(model).values()}


def _half(parameter: nn.Parameter) -> nn.Parameter:
    layout = torch.channels_last if parameter.dim() == 4 else torch.contiguous_format
    half = parameter.detach().to(torch.bfloat16, memory_format=layout)
    return nn.Parameter(half, requires_grad=parameter.requires_grad)
