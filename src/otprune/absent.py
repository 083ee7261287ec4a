"""What is left of a branch that was taken out: modules that compute nothing, and the nothing they hand on."""

import operator
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


IN_PLACE = frozenset({Tensor.add_, Tensor.__iadd__, operator.iadd})

# What is asked of a tensor and is no tensor itself.
FACTS = frozenset(
    {
        *("size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "is_contiguous", "get_device"),
        *("item", "tolist", "numpy", "data_ptr", "element_size", "type", "is_floating_point", "is_complex", "equal"),
    }
)


class Absent:
    """The value of a branch that is gone. Added to a tensor it is that tensor; whatever else is done to it, it stays.

    Where a tensor is added to it in place, it has become that tensor for whoever still holds it. Until then it has no
    sizes and no values, and whoever asks for them gets an error.

    >>> x = torch.ones(2)
    >>> x + Absent() is x, torch.relu(Absent()) * 3 + x is x
    (True, True)
    >>> y = z = Absent()
    >>> y += x
    >>> torch.equal(z * 2, x * 2)
    True
    """

    became: Tensor | None = None

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        target, args, kwargs = args[0] if args else None, tuple(map(_now, args)), dict(kwargs or {})
        kwargs = {name: _now(value) for name, value in kwargs.items()}
        operands = (*args, *kwargs.values())
        if not any(isinstance(operand, Absent) for operand in operands):
            return func(*args, **kwargs)
        present = [operand for operand in operands if isinstance(operand, Tensor)]
        if func in SUMS and present:
            if func in IN_PLACE and isinstance(target, Absent):
                target.became = present[0]
            return present[0]
        if getattr(func, "__name__", "") in FACTS:
            raise TypeError(f"a branch that was pruned away has no {func.__name__}")
        return Absent()

    def __add__(self, other: Any) -> Any:
        if self.became is not None:
            return self.became + other
        return other if isinstance(other, Tensor) else self

    __radd__ = add = __add__

    def __iadd__(self, other: Any) -> Any:
        if self.became is not None:
            self.became += other
            return self.became
        if isinstance(other, Tensor):
            self.became = other
            return other
        return self

    add_ = __iadd__

    def __getattr__(self, name: str) -> Any:
        if self.became is not None:
            return getattr(self.became, name)
        if name.startswith("__") or name in FACTS or not callable(getattr(Tensor, name, None)):
            raise AttributeError(f"a branch that was pruned away has no {name}")
        return lambda *args, **kwargs: self


def _now(value: Any) -> Any:
    """What a value is by now: a tensor, if it is an absent branch that one was added to in place."""
    return value.became if isinstance(value, Absent) and value.became is not None else value


def _operator(name: str) -> Any:
    def apply(self: Absent, *others: Any) -> Any:
        return self if self.became is None else getattr(self.became, name)(*others)

    return apply


for _name in ("neg", "abs", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow"):
    setattr(Absent, f"__{_name}__", _operator(f"__{_name}__"))


class Removed(nn.Module):
    """Stands where a layer of a removed branch stood; runs no kernel."""

    def forward(self, *inputs: Any, **options: Any) -> Absent:
        return Absent()
