"""Data for a run on meta tensors, computed only where the model looks at it.

A detector looks at the boxes that it finds, to cut masks out, and never at the masks, which are most of its work. So
operators are written down while they run on meta tensors. When a value is wanted, those that it follows from are run on
real tensors, in their order, and no others.
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

FROM_NUMBERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})

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
    reads: frozenset[Storage]
    returns: frozenset[Storage]
    overwrites: frozenset[Storage]


class Deferred:
    """Real values of the meta tensors of a run, for a model on `device`; a value goes when its meta tensor does.

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
        self._readers: defaultdict[Storage, list[_Call]] = defaultdict(list)
        self._writers: defaultdict[Storage, list[_Call]] = defaultdict(list)

    def know(self, meta: Tensor, value: Tensor) -> None:
        """What a meta tensor stands for; operators may overwrite it."""
        self._known[meta] = value

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """An operator has run on meta tensors. One that makes them out of nothing runs here at once."""
        given, made = _meta_tensors((args, kwargs)), _meta_tensors(out)
        if not made:
            return
        self._calls += 1
        overwritten = _meta_tensors(written_into(func, args, kwargs))
        memory = (frozenset(map(_storage, tensors)) for tensors in (given, made, overwritten))
        call = _Call(self._calls, func, args, kwargs, out, *memory)
        if not given:
            self._perform(call)
            return
        for storage in call.reads:
            self._readers[storage].append(call)
        for storage in call.returns | call.overwrites:
            self._writers[storage].append(call)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on what its meta tensors stand for, after all that this follows from."""
        read, written = _meta_tensors((args, kwargs)), _meta_tensors(written_into(func, args, kwargs))
        waiting = {reader for tensor in written for reader in self._readers[_storage(tensor)]}
        for call in sorted(self._needed(map(_storage, read), waiting), key=lambda call: call.order):
            self._perform(call)
            self._forget(call)
        return func(*self._real(args), **self._real(kwargs))

    def _needed(self, storages: Iterable[Storage], calls: set[_Call]) -> set[_Call]:
        """Those calls, and those by which memory gets its values: before it is overwritten, its readers have to run."""
        found, seen = set(calls), set[Storage]()
        waiting = [*storages, *(memory for call in calls for memory in call.reads | call.returns)]
        while waiting:
            storage = waiting.pop()
            if storage in seen:
                continue
            seen.add(storage)
            for call in self._writers.get(storage, ()):
                before = [reader for memory in call.overwrites for reader in self._readers[memory]]
                new = {call, *(reader for reader in before if reader.order < call.order)} - found
                found |= new
                waiting += [memory for one in new for memory in one.reads | one.returns]
        return found

    def _perform(self, call: _Call) -> None:
        out = call.func(*self._real(call.args), **self._real(call.kwargs))
        for meta, value in zip(pytree.tree_leaves(call.out), pytree.tree_leaves(out), strict=True):
            if isinstance(meta, Tensor):
                self._known[meta] = value

    def _forget(self, call: _Call) -> None:
        for storage in call.reads:
            self._readers[storage].remove(call)
        for storage in call.returns | call.overwrites:
            self._writers[storage].remove(call)

    def keeping_numbers(self) -> TorchFunctionMode:
        """Around the model's code: tensors that it makes of Python's numbers are real ones, which keep the numbers."""
        return _RealNumbers(self._device)

    def _real(self, values: Any) -> Any:
        return pytree.tree_map(self._real_one, values)

    def _real_one(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_meta:
            return self._known[value]
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


def _meta_tensors(values: Any) -> list[Tensor]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, Tensor) and value.is_meta]


def _storage(tensor: Tensor) -> Storage:
    return int(tensor.untyped_storage()._cdata)


def written_into(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among its arguments that an operator writes into.

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
