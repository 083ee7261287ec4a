"""Tensors of every type from the leader of a group to all others, also of types that gloo and NCCL do not know."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from otprune.tensors import named_tensors

KNOWN = {
    *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
}
IGNORED = "_ddp_params_and_buffers_to_ignore"  # as DistributedDataParallel calls it


@torch.no_grad()
def send(tensors: Iterable[Tensor]) -> None:
    """Give all processes the leader's values; what is of no known type travels as bytes.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> send([torch.zeros(2), torch.zeros((), dtype=torch.int16)])
    >>> dist.destroy_process_group()
    """
    for tensor in tensors:
        sent = tensor.contiguous()
        dist.broadcast(sent if sent.dtype in KNOWN else sent.view(-1).view(torch.uint8), 0)
        if sent is not tensor:
            tensor.copy_(sent)


def odd_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module, by name, that can only be sent as bytes.

    >>> odd_tensors(nn.BatchNorm1d(2)), list(odd_tensors(nn.BatchNorm1d(2).to(torch.float8_e4m3fn)))
    ({}, ['weight', 'bias', 'running_mean', 'running_var'])
    """
    return {name: tensor for name, tensor in named_tensors(module).items() if tensor.dtype not in KNOWN}


def trained_together(module: nn.Module, devices: list[torch.device] | None) -> nn.Module:
    """The module for a group, before each of whose forward passes the buffers of all processes are the leader's.

    DistributedDataParallel sends those of known types alone.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> type(trained_together(nn.Linear(2, 1), None)).__name__
    'DistributedDataParallel'
    >>> dist.destroy_process_group()
    """
    odd = odd_tensors(module)
    with _ignoring(module, odd):
        together = DistributedDataParallel(module, device_ids=devices)

    def send_odd(*_: Any) -> None:
        send(odd_tensors(module).values())  # found anew, since a forward pass may put others in their place

    if odd:
        together.register_forward_pre_hook(send_odd)
    return together


@contextmanager
def _ignoring(module: nn.Module, names: Iterable[str]) -> Iterator[None]:
    """What DistributedDataParallel is to leave alone, it reads off the module, which may be the user's own."""
    before = getattr(module, IGNORED, None)
    setattr(module, IGNORED, [*(before or ()), *names])
    try:
        yield
    finally:
        if before is None:
            delattr(module, IGNORED)
        else:
            setattr(module, IGNORED, before)
