"""Is the pruned model the masked original?"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from otprune.abstract import arguments, put_back
from otprune.errors import VerificationError
from otprune.inputs import make, tensors_by_path
from otprune.plan import PruningPlan
from otprune.tensors import named_tensors, substituted

DIVERGED = 1e-6  # or what rounding comes to, where the precision is lower than double
MORE_THAN_ROUNDING = 1e-3  # of the largest output, in whatever precision


@dataclass(frozen=True)
class Verification:
    """The largest difference between the outputs, which output it is in, and how far the outputs reach at all.

    `first_layer` is the first batch norm whose remaining channels differ by more than rounding, if any does.
    """

    error: float
    where: str
    scale: float
    first_layer: str | None

    @property
    def relative(self) -> float:
        """The error as a share of the largest output."""
        return self.error / self.scale

    def __str__(self) -> str:
        layer = f", first in layer {self.first_layer}" if self.first_layer else ""
        return f"largest error {self.error:.3g} of {self.scale:.3g} in {self.where}{layer}"


def verify(model: nn.Module, small: nn.Module, plan: PruningPlan, inputs: Any) -> Verification:
    """Compare a pruned model with the original whose dropped channels are masked, on given inputs, in evaluation mode.

    Neither model is changed. Raises where the comparison would prove nothing: outputs that do not depend on the
    inputs, or are not finite.

    >>> import otprune as ot
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)).double()
    >>> net[1].weight.data[1] = 1e-6
    >>> x = torch.randn(1, 3, 8, 8).double()
    >>> p = ot.plan(net, x)
    >>> verify(net, ot.prune(net, p), p, x).error < 1e-12
    True
    """
    kept = {layer.name: layer.kept for layer in plan.layers}
    masks = masked_parameters(model, plan)
    expected, layers = _run(model, masks, inputs, kept)
    found, layers_found = _run(small, {}, inputs, {})
    moved, _ = _run(model, masks, pytree.tree_map_only(Tensor, _other_values, inputs), {})
    error, where = _largest(expected, found)
    scale = max((float(t.abs().max()) for t in expected.values() if t.numel()), default=0.0)
    if not math.isfinite(error) or scale == 0:
        raise VerificationError(f"the outputs are empty, not finite or all zero in {where}: nothing can be compared")
    if all(name in moved and torch.equal(value, moved[name]) for name, value in expected.items()):
        raise VerificationError("the masked model's outputs do not depend on its inputs: the comparison proves nothing")
    differing = (name for name, value in layers.items() if _differs(value, layers_found.get(name)))
    return Verification(error, where, scale, next(differing, None))


def require_same_values(model: nn.Module, small: nn.Module, plan: PruningPlan) -> None:
    """Raise where the pruned model is another one than the masked original, on inputs like the plan's.

    Where the two cannot be compared, since the model refuses values made up for it, or all outputs are zero, nothing is
    told.

    >>> import otprune as ot
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> net[1].weight.data[1] = 1e-6
    >>> p = ot.plan(net, torch.zeros(1, 3, 8, 8))
    >>> require_same_values(net, ot.prune(net, p), p)
    """
    first = next(model.parameters())
    inputs = make(plan.inputs, first.device, torch.Generator().manual_seed(1))  # other values than it is moved to
    if first.is_meta or not _runs(model, inputs):
        return
    try:
        found = verify(model, small, plan, inputs)
    except VerificationError:
        return
    if found.relative > MORE_THAN_ROUNDING:
        raise VerificationError(
            f"the pruned model computes something else than the original ({found}), since {plan.misused}"
        )


def _runs(model: nn.Module, inputs: Any) -> bool:
    try:
        _run(model, {}, inputs, {})
    except Exception:  # whatever a model raises on values it does not like
        return False
    return True


def masked_parameters(model: nn.Module, plan: PruningPlan) -> dict[str, Tensor]:
    """The batch norms' tensors with the plan's channels zeroed, by name."""
    tensors = named_tensors(model)
    masks = {}
    for layer, channels in plan.masked.items():
        for kind in ("weight", "bias"):
            name = f"{layer}.{kind}" if layer else kind
            if name in tensors:
                masks[name] = tensors[name].detach().clone()
                masks[name][channels] = 0
    return masks


def _run(
    model: nn.Module, masks: dict[str, Tensor], inputs: Any, kept: dict[str, list[int]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The model's outputs by path, and those of its batch norms by layer, restricted to the channels kept."""
    layers: dict[str, Tensor] = {}
    args, kwargs = arguments(inputs)
    with torch.no_grad(), _evaluating(model, masks), _recording(model, layers, kept):
        out = model(*args, **kwargs)
    return {path: tensor.detach().double() for path, tensor in tensors_by_path(out, "output").items()}, layers


@contextmanager
def _evaluating(model: nn.Module, masks: dict[str, Tensor]) -> Iterator[None]:
    """Evaluation mode with masks; what a forward keeps on the model, or draws at random, is as before at the end."""
    tensors = named_tensors(model)
    buffers = {name: tensor.clone() for name, tensor in tensors.items() if not isinstance(tensor, nn.Parameter)}
    devices = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
    with put_back(model), substituted(model, buffers | masks), torch.random.fork_rng(list(devices)):
        model.eval()
        yield


@contextmanager
def _recording(model: nn.Module, layers: dict[str, Tensor], kept: dict[str, list[int]]) -> Iterator[None]:
    def recorder(name: str) -> Any:
        def record(module: nn.Module, inputs: Any, out: Tensor) -> None:
            layers.setdefault(name, out[:, kept[name]].clone() if name in kept else out.clone())

        return record

    norms = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    handles = [module.register_forward_hook(recorder(name)) for name, module in norms]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _largest(left: dict[str, Tensor], right: dict[str, Tensor]) -> tuple[float, str]:
    largest, where = -1.0, "no output"
    for name, value in left.items():
        if name not in right or right[name].shape != value.shape:
            raise VerificationError(f"{name} has another shape, or is missing, in the pruned model")
        error = float((value - right[name]).abs().max()) if value.numel() else 0.0
        if math.isnan(error):
            return error, name
        if error > largest:
            largest, where = error, name
    return largest, where


def _differs(expected: Tensor, found: Tensor | None) -> bool:
    if found is None or expected.shape != found.shape or expected.numel() == 0:
        return False
    diverged = max(DIVERGED, math.sqrt(torch.finfo(expected.dtype).eps))
    return bool((expected - found).abs().max() > diverged * expected.abs().max())


def _other_values(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor.flip(-1) if tensor.dim() > 1 else tensor  # the same values in another order stay valid ones
    drawn = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor)
    return -drawn if torch.equal(drawn, tensor) else drawn  # the user's may have been drawn by the same seed
