"""Example inputs as data: what shapes a model was planned with, and tensors made anew from that."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from otprune.errors import PlanError

_PLAIN = (str, int, float, bool, type(None))


def describe(example: Any) -> Any:
    """An example as JSON-able data: tensors by shape and type, containers and plain values as they are.

    >>> describe((torch.zeros(2, 3), True))
    {'tuple': [{'tensor': [2, 3], 'dtype': 'float32'}, True]}
    """
    if isinstance(example, Tensor):
        return {"tensor": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    if isinstance(example, tuple | list):
        return {type(example).__name__ if isinstance(example, list) else "tuple": [describe(item) for item in example]}
    if isinstance(example, dict):
        return {"dict": {key: describe(value) for key, value in example.items()}}
    if isinstance(example, _PLAIN):
        return example
    raise PlanError(f"the example holds a {type(example).__name__}: use tensors, numbers, lists, tuples and dicts")


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor inside an output: in lists, dicts, dataclasses and other objects that hold them as attributes.

    >>> len(tensors_in({"logits": torch.zeros(1), "features": (torch.zeros(1), 3)}))
    2
    """
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, torch.nn.Module) or not hasattr(value, "__dict__"):
        return []
    return [tensor for item in vars(value).values() for tensor in tensors_in(item)]


def make(description: Any, device: torch.device, generator: torch.Generator) -> Any:
    """An example that fits a description, floating-point tensors drawn from a normal distribution, others zero.

    >>> make({"tensor": [2, 3], "dtype": "int64"}, torch.device("cpu"), torch.Generator()).sum()
    tensor(0)
    """
    if not isinstance(description, dict):
        return description
    if "tensor" in description:
        return _tensor(description, device, generator)
    if "dict" in description:
        return {key: make(value, device, generator) for key, value in description["dict"].items()}
    kind = next(iter(description))
    items = [make(item, device, generator) for item in description[kind]]
    return items if kind == "list" else tuple(items)


def _tensor(description: dict[str, Any], device: torch.device, generator: torch.Generator) -> Tensor:
    dtype = getattr(torch, description["dtype"])
    if dtype.is_floating_point:
        return torch.randn(description["tensor"], generator=generator).to(device, dtype)
    return torch.zeros(description["tensor"], dtype=dtype, device=device)
