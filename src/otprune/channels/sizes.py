"""Sizes that a model's code reads off its tensors, told apart from numbers that are written in it.

Half of `x.shape[1]` is half of the channels however many there are; 64 stays 64. And what is calculated from the number
of channels, such as its root that attention divides by, is another number where some of them are gone.
"""

import operator
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

    origins: tuple[Origin, ...] = ()
    listener: Listener | None = None

    def of(self, origins: Sequence[Origin], listener: Listener | None) -> "Size":
        """The same, with what it comes from."""
        self.origins, self.listener = tuple(origins), listener
        return self

    def __float__(self) -> float:
        if self.listener is not None:
            self.listener.calculated(self.origins)
        return float(int(self))

    def __truediv__(self, other: Any) -> Any:
        return float(self) / other if isinstance(other, int | float) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return other / float(self) if isinstance(other, int | float) else NotImplemented

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return float(self) ** other if isinstance(other, float) or other < 0 else int(self) ** other


def _computed(function: Callable[[Any, Any], Any], turned: bool) -> Callable[[Size, Any], Any]:
    def result(size: Size, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        own, origins = int(size), size.origins + (other.origins if isinstance(other, Size) else ())
        return Size(function(other, own) if turned else function(own, other)).of(origins, size.listener)

    return result


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Size, f"__{_name}__", _computed(getattr(operator, _name), turned=False))
    setattr(Size, f"__r{_name}__", _computed(getattr(operator, _name), turned=True))


def follows_sizes(given: int | Sequence[int]) -> bool:
    """Whether all these numbers come from sizes.

    >>> follows_sizes([Size(4), Size(8) - 4]), follows_sizes(4)
    (True, False)
    """
    return all(isinstance(size, Size) for size in ([given] if isinstance(given, int) else given))


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
        return torch.Size(Size(size).of([(tensor, dim)], listener) for dim, size in enumerate(plain))

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

    torch.Tensor.shape, torch.Tensor.size, torch.Tensor.split = property(shape), size, split  # type: ignore
    F.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = own_attention
        torch.Tensor.split = own_split  # type: ignore[method-assign]
        del torch.Tensor.shape, torch.Tensor.size  # those of the base class come through again
