"""Data for a run on meta tensors, computed only where the model looks at it.

A detector looks at the boxes that it finds, to cut masks out, and never at the masks, which are most of its work. So
operators are written down while they run on meta tensors. When a value is wanted, those that it follows from are run on
real tensors, in their order, and no others.

A meta tensor has to share memory with others as the real one would. Where that is not sure, `NotImplementedError` is
raised, and the model has to be run on data as a whole.
"""

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

aten = torch.ops.aten

FROM_NUMBERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
WRITES_UNTOLD = frozenset({aten.native_batch_norm.default, aten.cudnn_batch_norm.default})  # its running statistics
TRAINING = 5  # among the arguments of those

Storage = int
"""What tells the memory of a tensor, which views of it share, from that of others."""


@dataclass(frozen=True, eq=False)
class _Call:
    """An operator that has not run on real tensors yet, and the memory that it reads, returns and overwrites."""

    order: int
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    reads: tuple[Storage, ...]
    returns: tuple[Storage, ...]
    overwrites: tuple[Storage, ...]

    def is_as_it_was(self) -> bool:
        """Whether its tensors have the memory that they had; `tensor.data = other` would give them another."""
        return self.reads == _storages((self.args, self.kwargs)) and self.returns == _storages(self.out)


class Deferred:
    """Real values of the meta tensors of a run, for a model on `device`.

    A value is kept as long as its meta tensor is, or an operator that reads it and has not run.

    >>> meta, real = torch.empty(2, device="meta"), torch.tensor([3.0, 4.0])
    >>> values = Deferred(torch.device("cpu"))
    >>> values.know(meta, real)
    >>> doubled = meta * 2
    >>> values.note(torch.ops.aten.mul.Tensor, (meta, 2), {}, doubled)
    >>> values.run(torch.ops.aten.sum.default, (doubled,), {})
    tensor(14.)
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._known: Any = WeakIdKeyDictionary()
        self._calls = 0
        self._readers: defaultdict[Storage, dict[_Call, None]] = defaultdict(dict)
        self._writers: defaultdict[Storage, dict[_Call, None]] = defaultdict(dict)

    def know(self, meta: Tensor, value: Tensor) -> None:
        """What a meta tensor stands for; operators may overwrite it."""
        if _layout(meta) != _layout(value):
            raise NotImplementedError("a tensor lies in memory otherwise than without data")
        self._known[meta] = (value, _storage(meta))

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """An operator has run on meta tensors. One that makes them out of nothing runs here at once."""
        if torch.is_autocast_enabled(self._device.type) or (func in WRITES_UNTOLD and args[TRAINING]):
            raise NotImplementedError(f"{func} does something else on data")
        reads, returns = _storages((args, kwargs)), _storages(out)
        overwrites = _storages(written_into(func, args, kwargs))
        if not returns and not overwrites:
            return
        self._calls += 1
        call = _Call(self._calls, func, args, kwargs, out, reads, returns, overwrites)
        if not reads:
            self._perform(call)
            return
        for storage in reads:
            self._readers[storage][call] = None
        for storage in (*returns, *overwrites):
            self._writers[storage][call] = None

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on what its meta tensors stand for, after all that this follows from."""
        if written_into(func, args, kwargs):
            raise NotImplementedError(f"{func} writes into a tensor, which the meta tensor would not tell")
        waiting = self._needed(_storages((args, kwargs)))
        while waiting:
            self._perform(waiting.pop())  # and let go of it, or what it has read would stay in memory
        given, named = self._real(args), self._real(kwargs)
        out = func(*given, **named)
        _refuse_views(out, (given, named))
        return out

    def keeping_numbers(self) -> TorchFunctionMode:
        """Around the model's code: tensors that it makes of Python's numbers are real ones, which keep the numbers."""
        return _RealNumbers(self._device)

    def _needed(self, storages: Iterable[Storage]) -> list[_Call]:
        """The calls by which memory gets its values, the first one last; before it is overwritten, its readers run."""
        found, seen, waiting = set[_Call](), set[Storage](), list(storages)
        while waiting:
            storage = waiting.pop()
            if storage in seen:
                continue
            seen.add(storage)
            writers = self._writers.get(storage, {})
            overwritten = max((call.order for call in writers if storage in call.overwrites), default=0)
            readers = (call for call in self._readers.get(storage, {}) if call.order < overwritten)
            new = {*writers, *readers} - found
            found |= new
            waiting += [memory for call in new for memory in (*call.reads, *call.returns)]
        return sorted(found, key=lambda call: -call.order)

    def _perform(self, call: _Call) -> None:
        if not call.is_as_it_was():
            raise NotImplementedError(f"{call.func} has had its tensors exchanged")
        out = call.func(*self._real(call.args), **self._real(call.kwargs))
        for meta, value in zip(pytree.tree_leaves(call.out), pytree.tree_leaves(out), strict=True):
            if isinstance(meta, Tensor):
                self.know(meta, value)
        for storage in call.reads:
            self._readers[storage].pop(call, None)
        for storage in (*call.returns, *call.overwrites):
            self._writers[storage].pop(call, None)

    def _real(self, values: Any) -> Any:
        return pytree.tree_map(self._real_one, values)

    def _real_one(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_meta:
            real, storage = self._known[value]
            if storage != _storage(value):
                raise NotImplementedError("a tensor was given other memory")
            return real
        return self._device if isinstance(value, torch.device) and value.type == "meta" else value


class _RealNumbers(TorchFunctionMode):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        named = kwargs or {}
        if func in FROM_NUMBERS and torch.device(named.get("device") or "cpu").type == "meta":
            named = {**named, "device": self._device}
        return func(*args, **named)


def written_into(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among its arguments that an operator says it writes into.

    >>> written_into(torch.ops.aten.relu_.default, (torch.zeros(2),), {})
    [tensor([0., 0.])]
    """
    places, names = _written_arguments(func)
    found = [args[place] for place in places if place < len(args)] + [kwargs[name] for name in names if name in kwargs]
    return [value for value in pytree.tree_leaves(found) if isinstance(value, Tensor)]


@functools.cache
def _written_arguments(func: Any) -> tuple[list[int], list[str]]:
    written = [
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [place for place, _ in written], [name for _, name in written]


def _storages(values: Any) -> tuple[Storage, ...]:
    """The memory of the meta tensors."""
    return tuple(_storage(t) for t in pytree.tree_leaves(values) if isinstance(t, Tensor) and t.is_meta)


def _storage(tensor: Tensor) -> Storage:
    return int(tensor.untyped_storage()._cdata)


def _layout(tensor: Tensor) -> list[tuple[int, int]]:
    """The sizes, and the strides as far as they matter."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return [(size, stride if size > 1 and tensor.numel() else 0) for size, stride in sizes]


def _refuse_views(out: Any, given: Any) -> None:
    """What an operator ran on values for is new to the meta tensors, so it must not share memory with any."""
    memory = {_storage(value) for value in pytree.tree_leaves(given) if isinstance(value, Tensor)}
    for value in pytree.tree_leaves(out):
        if isinstance(value, Tensor) and _storage(value) in memory:
            raise NotImplementedError("an operator returns a view, or what it was given")
