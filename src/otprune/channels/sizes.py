"""Sizes that a model's code reads off its tensors, told apart from numbers that are written in it.

Half of `x.shape[1]` is half of the channels however many there are; 64 stays 64. And what is calculated from the number
of channels, such as its root that attention divides by, is another number where some of them are gone.
"""

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Origin = tuple[Tensor, int]


@dataclass(frozen=True)
class Listener:
    """Who is told how a model's code uses sizes.

    `split` hears before each split whether it follows sizes, and after it that others do: a chunk always does.
    `calculated` hears of the dimensions whose sizes go into a number that is not a whole one. While it is `deaf`, since
    an operator runs, say, sizes are plain numbers.
    """

    split: Callable[[bool], None]
    calculated: Callable[[Sequence[Origin]], None]
    deaf: Callable[[], bool] = lambda: False


class Size(int):
    """A size of a tensor, or a whole number computed from one; `origins` are the dimensions it comes from.

    >>> type(Size(8) // 2).__name__, type(3 + Size(8)).__name__, Size(8) / 2
    ('Size', 'Size', 4.0)
    """

    # By weak references: the model's code may keep a size for longer than its tensor, or the trace, should live.
    origins: tuple[tuple["weakref.ref[Tensor]", int], ...] = ()
    listener: "weakref.ref[Listener] | None" = None

    def of(self, tensor: Tensor, dim: int, listener: Listener) -> "Size":
        """The same, with what it comes from."""
        self.origins, self.listener = ((weakref.ref(tensor), dim),), weakref.ref(listener)
        return self

    def __float__(self) -> float:
        listener = None if self.listener is None else self.listener()
        if listener is not None:
            listener.calculated([(found, dim) for tensor, dim in self.origins if (found := tensor()) is not None])
        return float(int(self))

    def __reduce__(self) -> Any:
        return int, (int(self),)  # saved or copied, it is a plain number


def _whole(function: Callable[[Any, Any], Any], turned: bool) -> Callable[[Size, Any], Any]:
    """A whole number computed from whole ones is a size; with a fraction in it, the size was calculated with."""

    def result(size: Size, other: Any) -> Any:
        if isinstance(other, float):
            return function(other, float(size)) if turned else function(float(size), other)
        if not isinstance(other, int):
            return NotImplemented
        found = Size(function(other, int(size)) if turned else function(int(size), int(other)))
        found.origins, found.listener = size.origins + getattr(other, "origins", ()), size.listener
        return found

    return result


def _fraction(function: Callable[[Any, Any], Any], turned: bool) -> Callable[[Size, Any], Any]:
    def result(size: Size, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        return function(other, float(size)) if turned else function(float(size), other)

    return result


Size.__neg__ = lambda size: 0 - size  # type: ignore[method-assign]
for _kind, _names in ((_whole, ("add", "sub", "mul", "floordiv", "mod")), (_fraction, ("truediv", "pow"))):
    for _name in _names:
        setattr(Size, f"__{_name}__", _kind(getattr(operator, _name), turned=False))
        setattr(Size, f"__r{_name}__", _kind(getattr(operator, _name), turned=True))


def follows_sizes(given: Any) -> bool:
    """Whether a number, or all of several, come from sizes.

    >>> follows_sizes([Size(4), Size(8) - 4]), follows_sizes(4)
    (True, False)
    """
    return all(isinstance(size, Size) for size in (given if isinstance(given, list | tuple) else [given]))


@contextmanager
def sizes_told_apart(listener: Listener) -> Iterator[None]:
    """Inside, tensors tell their sizes as `Size`.

    >>> said = []
    >>> with sizes_told_apart(Listener(said.append, said.append)):
    ...     _ = torch.zeros(4).split(2), torch.zeros(4).split(torch.zeros(4).shape[0] // 2)
    >>> said
    [False, True, True, True]
    """
    own_shape: Any = torch.Tensor.shape
    own_split: Any = torch.Tensor.split
    own_attention: Any = F.scaled_dot_product_attention

    def shape(tensor: Tensor) -> torch.Size:
        plain: torch.Size = own_shape.__get__(tensor)
        if listener.deaf():
            return plain
        return torch.Size(Size(size).of(tensor, dim, listener) for dim, size in enumerate(plain))

    def size(tensor: Tensor, dim: int | None = None) -> torch.Size | int:
        return shape(tensor) if dim is None else shape(tensor)[dim]

    def split(tensor: Tensor, split_size: Any, dim: int = 0) -> Any:
        listener.split(follows_sizes(split_size))
        try:
            return own_split(tensor, split_size, dim)
        finally:
            listener.split(True)

    def attention(query: Tensor, *others: Any, scale: float | None = None, **named: Any) -> Any:
        if scale is None:  # it divides by the root of their number
            listener.calculated([(query, query.dim() - 1)])
        return own_attention(query, *others, scale=scale, **named)

    with (
        _replaced(torch.Tensor, shape=property(shape), size=size, split=split),
        _replaced(F, scaled_dot_product_attention=attention),
    ):
        yield


@contextmanager
def _replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Inside, the owner has other attributes; those that it has from elsewhere come through again at the end."""
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            setattr(owner, name, before[name]) if name in before else delattr(owner, name)
