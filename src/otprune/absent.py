"""What is left of a branch that was taken out: modules that compute nothing, and the nothing they hand on."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# torch.export passes the bare Python operators.
SUMS = frozenset(
    {
        *(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__),
        *(operator.add, operator.iadd),
    }
)


# What is asked of a tensor and is no tensor itself.
FACTS = frozenset(
    {
        *("size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "is_contiguous", "get_device"),
        *("item", "tolist", "numpy", "data_ptr", "element_size", "type", "is_floating_point", "is_complex", "equal"),
    }
)


class Absent:
    """The value of a branch that is gone. Added to a tensor it is that tensor; whatever else is done to it, it stays.

    It has no sizes and no values, and whoever asks for them gets an error.

    >>> x = torch.ones(2)
    >>> x + Absent() is x, torch.relu(Absent()) * 3 + x is x
    (True, True)
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in SUMS:
            operands = (*args[:2], *(kwargs or {}).values())
            present = [operand for operand in operands if isinstance(operand, Tensor)]
            if present:
                return present[0]
        if getattr(func, "__name__", "") in FACTS:
            raise TypeError(f"a branch that was pruned away has no {func.__name__}")
        return Absent()

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, Tensor) else self

    __radd__ = __iadd__ = add = add_ = __add__

    def _stays(self, *others: Any) -> "Absent":
        return self

    __neg__ = __abs__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _stays

    def __getattr__(self, name: str) -> Callable[..., "Absent"]:
        if name.startswith("__") or name in FACTS or not callable(getattr(Tensor, name, None)):
            raise AttributeError(f"a branch that was pruned away has no {name}")
        return lambda *args, **kwargs: self


class Removed(nn.Module):
    """Stands where a layer of a removed branch stood; runs no kernel."""

    def forward(self, *inputs: Any) -> Absent:
        return Absent()
