"""Example inputs as data: what shapes a model was planned with, and tensors made anew from that."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from otprune.errors import PlanError

_FEW = 4096
_MANY = 2**28
_PLAIN = (str, int, float, bool, type(None))


def describe(example: Any) -> Any:
    """An example as JSON-able data: tensors by shape and type, containers and plain values as they are.

    Tensors of whole numbers keep their values too, unless they are large: they may be lengths, or places in a table.

    >>> describe((torch.zeros(2, 3), True))
    {'tuple': [{'tensor': [2, 3], 'dtype': 'float32'}, True]}
    """
    if isinstance(example, Tensor):
        description = {"tensor": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
        whole = not (example.is_floating_point() or example.is_complex() or example.is_meta)
        return description | ({"values": example.tolist()} if whole and example.numel() <= _FEW else {})
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
    return list(tensors_by_path(value).values())


def tensors_by_path(value: Any, path: str = "") -> dict[str, Tensor]:
    """The same, by the way that leads to each.

    >>> list(tensors_by_path({"logits": torch.zeros(1), "features": (torch.zeros(1), 3)}, "output"))
    ["output['logits']", "output['features'][0]"]
    """
    if isinstance(value, Tensor):
        return {path: value}
    found: dict[str, Tensor] = {}
    for step, item in _items(value):
        found |= tensors_by_path(item, path + step)
    return found


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if callable(value) or not hasattr(value, "__dict__"):
        return []
    return [(f".{name}", item) for name, item in vars(value).items()]


def make(description: Any, device: torch.device, generator: torch.Generator) -> Any:
    """An example that fits a description, floating-point tensors drawn from a normal distribution.

    >>> make({"tensor": [2, 3], "dtype": "int64"}, torch.device("cpu"), torch.Generator()).sum()
    tensor(0)
    """
    if not isinstance(description, dict):
        return description
    if "tensor" in description:
        return _tensor(description, device, generator)
    kind, items = next(iter(description.items()), (None, None))
    if kind == "dict" and isinstance(items, dict):
        return {key: make(value, device, generator) for key, value in items.items()}
    if kind not in ("list", "tuple") or not isinstance(items, list):
        raise _damaged(f"{kind} is nothing that a model is given")
    made = [make(item, device, generator) for item in items]
    return made if kind == "list" else tuple(made)


def _tensor(description: dict[str, Any], device: torch.device, generator: torch.Generator) -> Tensor:
    sizes, dtype = description["tensor"], vars(torch).get(str(description.get("dtype")))
    if not isinstance(dtype, torch.dtype) or not isinstance(sizes, list) or set(map(type, sizes)) - {int}:
        raise _damaged("a tensor has a shape and a type")
    if any(size < 0 for size in sizes) or math.prod(sizes) > _MANY:
        raise _damaged(f"a tensor of shape {sizes} is more than the {_MANY:,} values that are made up")
    try:
        return _made(description, dtype, device, generator)
    except (RuntimeError, TypeError, ValueError) as error:  # sizes that do not fit the values, types of no use
        raise _damaged(str(error)) from error


def _made(description: dict[str, Any], dtype: torch.dtype, device: torch.device, generator: torch.Generator) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(description["tensor"], generator=generator).to(device, dtype)
    if "values" in description:
        return torch.tensor(description["values"], dtype=dtype, device=device).view(description["tensor"])
    return torch.zeros(description["tensor"], dtype=dtype, device=device)


def _damaged(why: str) -> PlanError:
    return PlanError(f"the plan's example inputs cannot be made: {why}. Make a new plan, with a smaller example.")
