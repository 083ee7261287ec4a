"""Sizes that a model's code reads off its tensors or remembers, told apart from numbers that are written in it.

Half of `x.shape[1]` is half of the channels however many there are; 64 stays 64. What a module remembers can be changed
if all it is used for is cutting channels into pieces. And what is calculated from the number of channels, such as its
root that attention divides by, is another number where some of them are gone.
"""

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class Place(NamedTuple):
    """Where a module remembers a number: an attribute, or an item of a list that is one."""

    module: str
    attribute: str
    item: int | None
    value: int


def _nothing(*_: Any) -> None:
    """What a listener does about what it does not care for."""


@dataclass(frozen=True)
class Listener:
    """Who is told how a model's code uses sizes.

    `given` hears what sizes the code itself gives to a split or a view that is about to run, and None after it.
    `calculated` hears of the origins of sizes that go into a number that is not a whole one; a dimension's origin is
    what `origin` makes of it. `used` hears of remembered numbers that are used for anything else. While it is `deaf`,
    since an operator runs, say, sizes are plain numbers.
    """

    given: Callable[[Any], None] = _nothing
    calculated: Callable[[Sequence[Any]], None] = _nothing
    origin: Callable[[Tensor, int], Any] = _nothing
    used: Callable[[Sequence[Place]], None] = _nothing
    deaf: Callable[[], bool] = lambda: False


class Size(int):
    """A size of a tensor, or a whole number computed from one; `origins` are the dimensions it comes from.

    >>> type(Size(8) // 2).__name__, type(3 + Size(8)).__name__, Size(8) / 2
    ('Size', 'Size', 4.0)
    """

    origins: tuple[Any, ...] = ()
    places: tuple[Place, ...] = ()
    # By a weak reference: the model's code may keep a size for longer than the trace should live.
    listener: "weakref.ref[Listener] | None" = None

    def of(
        self, listener: "weakref.ref[Listener] | None", origins: tuple[Any, ...] = (), places: tuple[Place, ...] = ()
    ) -> "Size":
        """The same, with what it comes from."""
        self.listener, self.origins, self.places = listener, origins, places
        return self

    def __float__(self) -> float:
        listener = None if self.listener is None else self.listener()
        if listener is not None:
            listener.calculated(self.origins)
            listener.used(self.places)
        return float(int.__int__(self))

    def __reduce__(self) -> Any:
        return int, (int.__int__(self),)  # saved or copied, it is a plain number


class Remembered(Size):
    """A number that a module remembers in `places`, or one computed from it: tells when it is looked at."""

    __hash__ = int.__hash__


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    def result(size: Remembered, *others: Any) -> Any:
        listener = None if size.listener is None else size.listener()
        if listener is not None:
            listener.used(size.places)
        return function(size, *others)

    return result


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "int", "index", "bool", "divmod"):
    setattr(Remembered, f"__{_name}__", _looking(getattr(int, f"__{_name}__")))


def _whole(function: Callable[[Any, Any], Any], turned: bool) -> Callable[[Size, Any], Any]:
    """A whole number computed from whole ones is a size; with a fraction in it, the size was calculated with."""

    def result(size: Size, other: Any) -> Any:
        if isinstance(other, float):
            return function(other, float(size)) if turned else function(float(size), other)
        if not isinstance(other, int):
            return NotImplemented
        own, others = int.__int__(size), int.__int__(other)
        places = size.places + getattr(other, "places", ())
        found = (Remembered if places else Size)(function(others, own) if turned else function(own, others))
        return found.of(size.listener, size.origins + getattr(other, "origins", ()), places)

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
    """Whether a number, or all of several, come from sizes of tensors.

    >>> follows_sizes([Size(4).of(None, ("x",)), Size(8).of(None, ("x",)) - 4]), follows_sizes(4)
    (True, False)
    """
    found = given if isinstance(given, list | tuple) else [given]
    return all(isinstance(size, Size) and (size.origins or not size.places) for size in found)


class _Asked(TorchFunctionMode):
    """Hears what the model's code gives to torch's functions."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, listener = kwargs or {}, self._listener
        if listener.deaf():
            return func(*args, **kwargs)
        sizes = _sizes_given(func, args, kwargs)
        if sizes is None:
            found = [number for number in _numbers_in((args, kwargs)) if isinstance(number, Size)]
            listener.used([place for number in found for place in number.places])
            if getattr(func, "__name__", "") not in _SHAPED_BY_SIZES:
                listener.calculated([origin for number in found for origin in number.origins])
        listener.given(sizes)
        try:
            return func(*args, **kwargs)
        finally:
            listener.given(None)


def _numbers_in(values: Any) -> Iterator[Any]:
    """What the arguments of a function hold, the ends of slices too."""
    for value in pytree.tree_leaves(values):
        yield from (value.start, value.stop, value.step) if isinstance(value, slice) else (value,)


def _sizes_given(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The sizes among the arguments of a split or a view."""
    name = getattr(func, "__name__", "")
    if name not in _WITH_SIZES:
        return None
    named = [kwargs[key] for key in _SIZES_BY_NAME if key in kwargs]
    given: Any = args[1:] or (named[0] if named else None)
    if args[1:] and (name in _SPLITS or isinstance(args[1], list | tuple)):
        given = args[1]
    return list(given) if name not in _SPLITS and isinstance(given, list | tuple) else given


_SPLITS = frozenset({"split", "split_with_sizes"})
_WITH_SIZES = _SPLITS | {"view", "reshape"}
# What takes a size for the shape of its result, or for as many groups, does as well with another one.
_SHAPED_BY_SIZES = frozenset(
    {
        *("expand", "broadcast_to", "unflatten", "zeros", "ones", "empty", "full", "rand", "randn"),
        *("new_zeros", "new_ones", "new_empty", "new_full", "conv1d", "conv2d", "conv3d"),
    }
)
_SIZES_BY_NAME = ("split_size", "split_size_or_sections", "split_sizes", "shape", "size")


@contextmanager
def sizes_told_apart(listener: Listener, model: nn.Module | None = None) -> Iterator[None]:
    """Inside, tensors tell their sizes as `Size`, and the model's modules theirs as `Remembered`.

    Whoever calls this puts back the attributes of the model's modules.

    >>> said = []
    >>> with sizes_told_apart(Listener(said.append)):
    ...     _ = torch.zeros(4).split(2), torch.zeros(4).split(torch.zeros(4).shape[0] // 2)
    >>> [type(given).__name__ for given in said if given is not None]
    ['int', 'Size']
    """
    own_shape: Any = torch.Tensor.shape
    own_attention: Any = F.scaled_dot_product_attention
    heard = weakref.ref(listener)

    def shape(tensor: Tensor) -> torch.Size:
        with torch._C.DisableTorchFunction():
            plain: torch.Size = own_shape.__get__(tensor)
        if listener.deaf():
            return plain
        return torch.Size(_size_of(tensor, dim, size, listener, heard) for dim, size in enumerate(plain))

    def size(tensor: Tensor, dim: int | None = None) -> torch.Size | int:
        return shape(tensor) if dim is None else shape(tensor)[dim]

    def attention(query: Tensor, *others: Any, scale: float | None = None, **named: Any) -> Any:
        if scale is None:  # it divides by the root of their number
            origin = listener.origin(query, query.dim() - 1)
            listener.calculated([] if origin is None else [origin])
        return own_attention(query, *others, scale=scale, **named)

    if model is not None:
        _tell_memories_apart(model, heard)
    with (
        _replaced(torch.Tensor, shape=property(shape), size=size),
        _replaced(F, scaled_dot_product_attention=attention),
        _Asked(listener),
    ):
        yield


def _size_of(tensor: Tensor, dim: int, size: int, listener: Listener, heard: "weakref.ref[Listener]") -> Size:
    origin = listener.origin(tensor, dim)
    return Size(size).of(heard, () if origin is None else (origin,))


def _tell_memories_apart(model: nn.Module, listener: "weakref.ref[Listener]") -> None:
    """Torch's own modules are left out: what they remember is not asked for, or changed by surgery."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch."):
            continue
        for attribute, value in list(vars(module).items()):
            if _is_size(value):
                vars(module)[attribute] = _remembered(listener, Place(name, attribute, None, value))
            elif type(value) in (list, tuple) and value and all(map(_is_size, value)):
                places = (Place(name, attribute, item, size) for item, size in enumerate(value))
                vars(module)[attribute] = type(value)(_remembered(listener, place) for place in places)


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 1


def _remembered(listener: "weakref.ref[Listener]", place: Place) -> Size:
    return Remembered(place.value).of(listener, places=(place,))


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
