"""Copies of modules with some of their parts replaced, made the way `copy.deepcopy` makes them, only faster."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

_ITSELF = frozenset({int, float, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size})


def copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A deep copy of a module, with the parts that `memo` knows (by identity) replaced by what it says.

    Most of what `deepcopy` does to a module is copying a dozen empty dictionaries by a general protocol; those are
    made here. Modules that define how they are copied or pickled are left to `deepcopy`.

    >>> net = nn.Sequential(nn.Linear(1, 1))
    >>> twin = copied(net, {})
    >>> torch.equal(twin[0].weight, net[0].weight), twin[0].weight is net[0].weight
    (True, False)
    """
    if id(module) in memo:
        known: nn.Module = memo[id(module)]
        return known
    if not _copies_plainly(type(module)):
        return copy.deepcopy(module, memo)
    twin = type(module).__new__(type(module))
    memo[id(module)] = twin
    vars(twin).update({name: _value(value, memo) for name, value in vars(module).items()})
    return twin


def _copies_plainly(kind: type[nn.Module]) -> bool:
    return (
        not hasattr(kind, "__deepcopy__")
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__getstate__ is nn.Module.__getstate__
        and kind.__setstate__ in (nn.Module.__setstate__, _ConvNd.__setstate__)  # torch.compile puts in its own
    )


def _value(value: Any, memo: dict[int, Any]) -> Any:
    if type(value) in _ITSELF:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, nn.Module):
        return copied(value, memo)
    if isinstance(value, Tensor) and not value.is_leaf:  # kept from a forward pass; deepcopy refuses it
        memo[id(value)] = value.detach().clone()
        return memo[id(value)]
    if type(value) in (Tensor, nn.Parameter) and value.grad is None and _has_its_own_memory(value):
        twin = value.detach().clone()
        memo[id(value)] = nn.Parameter(twin, value.requires_grad) if type(value) is nn.Parameter else twin
        return memo[id(value)]
    if type(value) is list:
        items: list[Any] = []
        memo[id(value)] = items
        items.extend(_value(item, memo) for item in value)
        return items
    if type(value) in (dict, OrderedDict):
        memo[id(value)] = twin = type(value)()
        twin.update((key, _value(item, memo)) for key, item in value.items())
        return twin
    return copy.deepcopy(value, memo)


def _has_its_own_memory(tensor: Tensor) -> bool:
    """Whether a tensor is all of its memory; views of something else are left to `deepcopy`, which keeps them views."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes
