"""Copies of modules with some of their parts replaced, made the way `copy.deepcopy` makes them, only faster."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

_ITSELF = frozenset({int, float, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size})
_Copier = Callable[[Any, dict[int, Any]], Any]


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
    return _copier(type(value))(value, memo)


def _copier(kind: type) -> _Copier:
    """The way to copy values of a type; exactly these containers, since others may hold more than their items."""
    if kind in _CONTAINERS:
        return _CONTAINERS[kind]
    return next((copier for base, copier in _FAMILIES.items() if issubclass(kind, base)), copy.deepcopy)


def _copied_list(value: list[Any], memo: dict[int, Any]) -> list[Any]:
    memo[id(value)] = twin = list[Any]()
    twin.extend(_value(item, memo) for item in value)
    return twin


def _copied_dict(value: dict[Any, Any], memo: dict[int, Any]) -> dict[Any, Any]:
    memo[id(value)] = twin = type(value)()
    twin.update((key, _value(item, memo)) for key, item in value.items())
    return twin


def _copied_tensor(value: Tensor, memo: dict[int, Any]) -> Tensor:
    if value.is_leaf and not (type(value) in _PLAIN_TENSORS and value.grad is None and _has_its_own_memory(value)):
        return copy.deepcopy(value, memo)
    twin = value.detach().clone()  # also of what is kept from a forward pass, which deepcopy refuses
    memo[id(value)] = nn.Parameter(twin, value.requires_grad) if type(value) is nn.Parameter else twin
    found: Tensor = memo[id(value)]
    return found


_PLAIN_TENSORS = (Tensor, nn.Parameter)
_CONTAINERS: dict[type, _Copier] = {list: _copied_list, dict: _copied_dict, OrderedDict: _copied_dict}
_FAMILIES: dict[type, _Copier] = {nn.Module: copied, Tensor: _copied_tensor}


def _has_its_own_memory(tensor: Tensor) -> bool:
    """Whether a tensor is all of its memory; views of something else are left to `deepcopy`, which keeps them views."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes
