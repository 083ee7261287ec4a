"""Whether what a plan says can be done to a model. A plan may come from a file, and a file from anywhere."""

from collections.abc import Sequence

from torch import Tensor, nn

from otprune.errors import PlanError
from otprune.plan import PruningPlan
from otprune.planning.cuts import ZEROS, Cut, Memorized
from otprune.tensors import named_tensors


def require_doable(model: nn.Module, plan: PruningPlan) -> None:
    """Raise where a plan names what the model has not, or an index that is out of range.

    >>> import dataclasses, torch
    >>> from otprune.plan import plan
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> damaged = dataclasses.replace(plan(net, torch.zeros(1, 3, 8, 8)), removed=["5"])
    >>> require_doable(net, damaged)
    Traceback (most recent call last):
    otprune.errors.PlanError: the plan is damaged: it has a layer 5, which the model has not. Make a new plan ...
    """
    _Check(model, plan).everything()


class _Check:
    def __init__(self, model: nn.Module, plan: PruningPlan) -> None:
        self.plan = plan
        self.modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        self.tensors: dict[str, Tensor] = {**model.state_dict(), **named_tensors(model)}

    def everything(self) -> None:
        for name in self.plan.removed:
            self._removed(name)
        for cut in self.plan.cuts:
            self._cut(cut)
        for fold in self.plan.folds:
            _require(tuple(self._tensor(fold.tensor).shape) == (len(fold.amounts),), f"cannot add to {fold.tensor}")
        for name, positions in self.plan.selections.items():
            self._selection(name, positions)
        for memory in self.plan.memories:
            self._memory(memory)
        for name in (*self.plan.not_in_place, *self.plan.still_read):
            self._left(name)
        for name in self.plan.sources:
            self._tensor(name)
        self._channels()

    def _channels(self) -> None:
        masked = self.plan.masked.items()
        kept = ((layer.name, layer.kept) for layer in self.plan.layers)
        for name, channels in (*masked, *kept):
            self._module(name)
            weight = self.tensors.get(f"{name}.weight" if name else "weight")
            _require(weight is not None and _are_below(channels, len(weight)), f"counts channels of {name} wrongly")

    def _removed(self, name: str) -> None:
        self._module(name)
        _require(name != "", "removes the whole model")

    def _cut(self, cut: Cut) -> None:
        tensor = self._tensor(cut.tensor)
        self._left(cut.tensor.rpartition(".")[0])
        _require(tuple(tensor.shape) == cut.shape and len(cut.keep) > 0, f"cuts another {cut.tensor}")
        for axis, indices in cut.keep.items():
            fits = axis < tensor.dim() and len(indices) > 0 and _are_below(indices, tensor.shape[axis])
            _require(fits, f"cuts {cut.tensor} at places that it has not")
        if cut.groups is not None:
            _require(_are_groups(tensor, cut, cut.groups), f"cuts {cut.tensor} into {cut.groups} groups")

    def _selection(self, name: str, positions: Sequence[int]) -> None:
        fits = len(positions) > 0 and min(positions) >= ZEROS and len(self._left(name).state_dict()) > 0
        _require(fits, f"selects channels for {name}")

    def _memory(self, memory: Memorized) -> None:
        """It is a number that was there before, and has become smaller."""
        known = vars(self._left(memory.module)).get(memory.attribute)
        if memory.item is not None:
            is_item = isinstance(known, list | tuple) and 0 <= memory.item < len(known)
            _require(is_item, f"changes {memory}")
            known = known[memory.item]  # type: ignore[index]
        is_size = isinstance(known, int) and not isinstance(known, bool) and 0 < memory.count <= known
        _require(is_size, f"changes {memory} to {memory.count}")

    def _left(self, name: str) -> nn.Module:
        """A module that no removed one holds."""
        inside = any(f"{name}.".startswith(f"{gone}.") for gone in self.plan.removed)
        _require(not inside, f"changes {name} and removes it")
        return self._module(name)

    def _module(self, name: str) -> nn.Module:
        _require(name in self.modules, f"has a layer {name}, which the model has not")
        return self.modules[name]

    def _tensor(self, name: str) -> Tensor:
        _require(name in self.tensors, f"has a tensor {name}, which the model has not")
        return self.tensors[name]


def _are_below(indices: Sequence[int], size: int) -> bool:
    return not indices or (min(indices) >= 0 and max(indices) < size)


def _are_groups(tensor: Tensor, cut: Cut, groups: int) -> bool:
    rows, columns = len(cut.keep.get(0, range(tensor.shape[0]))), len(cut.keep.get(1, ()))
    return tensor.dim() > 1 and groups > 0 and rows % groups == 0 and columns % groups == 0


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise PlanError(f"the plan is damaged: it {what}. Make a new plan for the model.")
