"""A pruned model is run once without computing, to see that its own code goes along with the smaller sizes."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from otprune.abstract import watch
from otprune.channels.graph import ANY_SIZE
from otprune.channels.operators import Numbers, functions_of
from otprune.channels.rules.shaping import SPLITS, VIEWS
from otprune.errors import ModelError, OtpruneError, VerificationError
from otprune.inputs import make, tensors_in
from otprune.location import innermost_module, user_location
from otprune.plan import PruningPlan

CUTTING = VIEWS | SPLITS


class _Rehearsal(Numbers):
    """Writes down what views and splits come to, and which modules' results nothing has read yet."""

    def __init__(self, model: nn.Module, modules: list[str]) -> None:
        super().__init__(model)
        self.shapes: list[list[int]] = []
        self.operators: list[Any] = []
        self.unread: dict[int, tuple[str, Tensor]] = {}
        self._names = {model.get_submodule(name): name for name in modules}

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        super().seen(func, args, kwargs, out)
        self.operators.append(func)
        if func in CUTTING:
            self.shapes += [list(tensor.shape) for tensor in tensors_in(out)]
        if self._names:
            self.read((args, kwargs))
            module = innermost_module()
            if module in self._names and isinstance(out, Tensor):
                self.unread[id(out)] = self._names[module], out

    def read(self, values: Any) -> None:
        """Something reads these tensors."""
        for value in pytree.tree_leaves(values):
            self.unread.pop(id(value), None)


def rehearse(small: nn.Module, plan: PruningPlan) -> None:
    """Raise where the pruned model does not run, or its code does something else than that of the original."""
    device = next(small.parameters()).device
    example = make(plan.inputs, device, torch.Generator().manual_seed(0))
    try:
        rehearsal, out = watch(small, example, lambda: _Rehearsal(small, plan.still_read), training=plan.training)
    except ModelError:
        raise
    except OtpruneError as error:
        cause = error.__cause__ or error
        raise VerificationError(
            f"the pruned model does not run: {cause} ({user_location(cause)}). If that line counts on a fixed number "
            f"of channels, compute it from the tensor's own shape, or leave the layers around it alone with "
            f"ignore=[...]."
        ) from error
    outputs = tensors_in(out)
    rehearsal.read(outputs)
    _require_outputs([list(tensor.shape) for tensor in outputs], plan)
    _require_pieces(rehearsal.shapes, plan)
    _require_readers(rehearsal)
    _require_numbers(rehearsal, plan.numbers)
    _require_functions(functions_of(rehearsal.operators), plan)


def _require_outputs(shapes: list[list[int]], plan: PruningPlan) -> None:
    expected = plan.outputs
    if not (len(shapes) == len(expected) and all(map(_fits, shapes, expected))):
        raise VerificationError(
            f"the pruned model's outputs have shapes {shapes} instead of {plan.outputs}: some line of the model takes "
            f"its channels by number. Leave the layers near it alone with ignore=[...]."
        )


def _fits(found: list[int], expected: list[int]) -> bool:
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(size in (ANY_SIZE, own) for own, size in pairs)


def _require_pieces(shapes: list[list[int]], plan: PruningPlan) -> None:
    found = iter(shapes)
    for piece in plan.pieces:
        if not any(_fits(shape, piece.shape) for shape in found):
            raise VerificationError(
                f"the pruned model does not cut its channels at {piece.line} into pieces of shape {piece.shape}, so "
                f"that line counts on a fixed number of channels: compute it from the tensor's own shape, or leave "
                f"the layers around it alone with ignore=[...]."
            )


def _require_numbers(rehearsal: _Rehearsal, expected: dict[str, list[str]]) -> None:
    for place, numbers in rehearsal.numbers.items():
        added = Counter(numbers) - Counter(expected.get(place, []))
        if added and place not in expected:
            raise VerificationError(
                f"the pruned model calculates in {place} ({rehearsal.lines[place]}), where the original did not: if "
                f"its code has changed since it was planned, or the plan is of an older version of otprune, plan again"
            )
        if added:
            raise VerificationError(
                f"the pruned model calculates with {next(iter(added))} in {place} ({rehearsal.lines[place]}), the "
                f"original with another number: that line counts channels. Leave the layers near it alone with "
                f"ignore=[...]."
            )


def _require_functions(found: dict[str, int], plan: PruningPlan) -> None:
    if plan.memories and found != plan.functions:
        raise VerificationError(f"the pruned model runs other functions than the original, since {plan.misused}")


def _require_readers(rehearsal: _Rehearsal) -> None:
    for name, _ in rehearsal.unread.values():
        raise VerificationError(
            f"layer {name} may no longer work in place, since the branch before it is gone, but the model ignores its "
            f"result: write x = self.{name}(x), or leave the layers of that branch alone with ignore=[...]."
        )
