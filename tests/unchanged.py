"""Was a model left as it was? Its modules, tensors, gradients, modes and hooks, and the random state beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


@contextmanager
def unchanged(*models: nn.Module) -> Iterator[None]:
    """Fail if the block changes any of the models, or the random state, whether it raises or not.

    >>> with unchanged(net := nn.Linear(2, 2)):
    ...     _ = net.eval()
    Traceback (most recent call last):
    AssertionError: the model was changed in training
    """
    before, random = [_snapshot(model) for model in models], torch.get_rng_state()
    try:
        yield
    finally:
        for model, old in zip(models, before, strict=True):
            _require_same(old, _snapshot(model))
        if not torch.equal(random, torch.get_rng_state()):
            raise AssertionError("random numbers were drawn")


def _snapshot(model: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        path = f"{name}." if name else ""
        found[f"{path}training"] = module.training
        found[f"{path}module"] = (id(module), type(module), module.extra_repr())
        found[f"{path}hooks"] = [list(getattr(module, hooks).items()) for hooks in HOOKS]
        found[f"{path}attributes"] = sorted(set(vars(module)))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        gradient = None if tensor.grad is None else tensor.grad.clone()
        found[f"tensor {name}"] = (id(tensor), tensor.requires_grad, tensor.detach().clone(), gradient)
    return found


def _require_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for key in {**before, **after}:
        if not _same(before.get(key), after.get(key)):
            raise AssertionError(f"the model was changed in {key}")


def _same(left: Any, right: Any) -> bool:
    """Equal, where NaN equals itself and tensors are compared as a whole."""
    ours, theirs = pytree.tree_leaves(left), pytree.tree_leaves(right)
    return len(ours) == len(theirs) and all(map(_same_leaf, ours, theirs))


def _same_leaf(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left.dtype == right.dtype and torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)
    return bool(left == right)
