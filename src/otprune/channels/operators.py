"""The operators that a model runs, told apart by their arguments."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from otprune.abstract import Watcher
from otprune.channels.graph import Signature
from otprune.location import code_running, user_location
from otprune.shortcuts import BATCH_NORMS

# Selections of channels, which surgery may add, and what depends on how a tensor lies in memory: of one channel,
# any layout is contiguous.
_NOT_COUNTED = frozenset({"index_select", "constant_pad_nd", "clone", "view", "_unsafe_view"})


def functions_of(operators: Iterable[Any]) -> dict[str, int]:
    """How often each function runs, in place or not; selections of channels and changes of layout left out.

    >>> functions_of([torch.ops.aten.relu.default, torch.ops.aten.relu_.default])
    {'relu': 2}
    """
    names = (func.overloadpacket.__name__.rstrip("_") for func in operators)
    return dict(sorted(Counter(name for name in names if name not in _NOT_COUNTED).items()))


class Numbers(Watcher):
    """Notes the numbers that operators calculate with.

    `numbers` has for each operator and place in the code what stands there beside tensors, and `lines` which line that
    is; none from a run on data, where it may be computed from the data.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.numbers: dict[str, list[str]] = {}
        self.lines: dict[str, str] = {}
        # The lines that last looked at a condition on data, and at data at all.
        self.branching: str | None = None
        self.looking_at: str | None = None

    def looks_at(self, value: Tensor) -> None:
        """Whether that does any harm is for the tracer to find out."""
        self.depends_on_data()
        if value.dtype == torch.bool:
            self.branching = self.looking_at

    def depends_on_data(self) -> None:
        self.looking_at = user_location()

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if torch.Tag.pointwise in func.tags and not self.on_data:
            numbers = [str(value) for value in (*args, *kwargs.values()) if type(value) in (int, float)]
            if numbers:
                place = f"{func} in {code_running()}"
                self.lines[place] = user_location()
                self.numbers.setdefault(place, []).append(", ".join(numbers))


class Operators(Numbers):
    """Counts the operators that run. One is known by its arguments: parameters by name, other tensors by shape."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.signatures: Counter[Signature] = Counter()

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        super().seen(func, args, kwargs, out)
        self.signatures[self.signature(func, args, kwargs)] += 1

    def signature(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
        """What a call looks like, so that the same call in another run is recognized.

        Batch norms are told which mode they run in, and are to the tracer the same in both.
        """
        if func in BATCH_NORMS:
            return (func,)
        return (func, *map(self._key, args), *kwargs, *map(self._key, kwargs.values()))

    def _key(self, value: Any) -> Hashable:
        if isinstance(value, Tensor):
            return self.name_of(value) or value.shape
        return tuple(map(self._key, value)) if isinstance(value, list | tuple) else value
