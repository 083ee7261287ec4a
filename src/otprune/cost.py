"""What a model costs: parameters, multiply-adds, and FLOPs as the paper counts them, per image and layer by layer.

The model is run once and every ATen operator it calls is looked up in a table. So what counts is what runs: modules
that were replaced, functional calls and hooks included.
"""

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree as pytree

from otprune.abstract import Watcher, arguments, watch
from otprune.errors import ExampleError
from otprune.shortcuts import BATCH_NORMS

aten = torch.ops.aten


class Work(NamedTuple):
    """The work of one operator, or of several together.

    >>> Work(macs=1, flops=2).plus(Work(macs=3, flops=4))
    Work(macs=4, flops=6)
    """

    macs: int
    flops: int

    def plus(self, other: "Work") -> "Work":
        """The work of both."""
        return Work(self.macs + other.macs, self.flops + other.flops)


Rule = Callable[[tuple[Any, ...], Any], Work]


def _convolution(args: tuple[Any, ...], out: Tensor) -> Work:
    inputs, weight, bias, transposed = *args[:3], args[6]
    # Each output sums over a kernel; in a transposed conv it is each input that is spread over one.
    kernels = inputs.numel() if transposed else out.numel()
    macs = kernels * math.prod(weight.shape[1:])
    return Work(macs, macs + (0 if bias is None else out.numel()))


def _dot_products(count: int, length: int) -> Work:
    return Work(count * length, count * max(2 * length - 1, 0))


def _product_of(position: int) -> Rule:
    """The rule of a matrix product whose left factor is the argument at `position`."""
    return lambda args, out: _dot_products(out.numel(), args[position].shape[-1])


def _attention(args: tuple[Any, ...], out: Any) -> Work:
    query, key, value = args[:3]
    queries, keys = math.prod(query.shape[:-1]), key.shape[-2]
    scores = _dot_products(queries * keys, query.shape[-1])
    return scores.plus(_dot_products(queries * value.shape[-1], keys))


def _batch_norm(args: tuple[Any, ...], out: Any) -> Work:
    return Work(0, 4 * args[0].numel())


def _average_pool(args: tuple[Any, ...], out: Tensor) -> Work:
    return Work(0, (math.prod(args[1]) - 1) * out.numel())


RULES: dict[Any, Rule] = {
    aten.convolution.default: _convolution,
    aten._convolution.default: _convolution,
    aten.linear.default: _product_of(0),
    aten.mm.default: _product_of(0),
    aten.bmm.default: _product_of(0),
    aten.mv.default: _product_of(0),
    aten.dot.default: _product_of(0),
    aten.addmm.default: _product_of(1),
    aten.baddbmm.default: _product_of(1),
    aten.addmv.default: _product_of(1),
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    aten._scaled_dot_product_flash_attention.default: _attention,
    aten._scaled_dot_product_efficient_attention.default: _attention,
    aten._scaled_dot_product_cudnn_attention.default: _attention,
    aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
    aten.avg_pool2d.default: _average_pool,
    aten.avg_pool3d.default: _average_pool,
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
}

# Free by the paper's count, beside everything pointwise: maximums, moved data, and the average over a whole image:
# with that one counted, DenseNet-121 would cost more than the paper reports.
FREE = frozenset(
    {
        aten.max_pool2d_with_indices,
        aten.max_pool3d_with_indices,
        aten.adaptive_max_pool2d,
        aten.adaptive_max_pool3d,
        aten._adaptive_avg_pool2d,
        aten._adaptive_avg_pool3d,
        aten.mean,
        aten.hardswish,
        aten.hardswish_,
        aten._prelu_kernel,
        aten.glu,
        aten.native_dropout,
        aten.cat,
        aten.stack,
        aten.unsafe_split,
        aten.unsafe_split_with_sizes,
        aten._unsafe_view,
        aten._to_copy,
        aten.copy_,
        aten.fill_,
        aten.zero_,
        aten._local_scalar_dense,
        aten.empty_like,
        aten.zeros_like,
        aten.ones_like,
        aten.full_like,
        aten.new_empty,
        aten.new_zeros,
        aten.new_ones,
        aten.new_full,
        aten.index,
        aten.index_select,
        aten.gather,
        aten.embedding,
        aten.repeat,
        aten.roll,
        aten.flip,
        aten.constant_pad_nd,
        aten.reflection_pad1d,
        aten.reflection_pad2d,
        aten.reflection_pad3d,
        aten.replication_pad1d,
        aten.replication_pad2d,
        aten.replication_pad3d,
        aten.pixel_shuffle,
        aten.pixel_unshuffle,
        aten.channel_shuffle,
        aten.native_channel_shuffle,
        aten.im2col,
        aten.upsample_nearest1d,
        aten.upsample_nearest2d,
        aten.upsample_nearest3d,
    }
)

_FREE_TAGS = frozenset({torch.Tag.pointwise, torch.Tag.inplace_view})
_WHOLE_MODEL = "(model)"
_FUNCTIONAL = "(functional)"
_HEADER = ("layer", "parameters", "MACs", "FLOPs")


@dataclass(frozen=True)
class LayerCost:
    """One layer's share: its own parameters and its work for one image.

    >>> LayerCost("conv", parameters=9, macs=576, flops=576).name
    'conv'
    """

    name: str
    parameters: int
    macs: int
    flops: int


@dataclass(frozen=True, repr=False)
class Cost:
    """What a model costs for one image; print it for a table.

    MACs are the multiply-adds of convs and matrix products alone. FLOPs follow the paper: a conv's MACs, plus one for
    each output with a bias; out·(2·in − 1) for a linear layer; four for each element a batch norm scales; k·k − 1 for
    each output of an average pool. `uncounted` names the operators that compute something and have no rule.

    >>> from torch import nn
    >>> cost(nn.Sequential(nn.Conv2d(3, 8, 3)), torch.zeros(2, 3, 10, 10))
    Cost(parameters=224, macs=13824, flops=14336)
    """

    layers: tuple[LayerCost, ...]
    uncounted: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Parameters of the model, shared ones once, buffers not at all."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-adds for one image."""
        return sum(layer.macs for layer in self.layers)

    @property
    def flops(self) -> int:
        """FLOPs for one image, as the paper counts them."""
        return sum(layer.flops for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """The cost as JSON knows it.

        >>> Cost((LayerCost("conv", 9, 576, 576),)).to_dict()["macs"]
        576
        """
        return {
            "parameters": self.parameters,
            "macs": self.macs,
            "flops": self.flops,
            "layers": [asdict(layer) for layer in self.layers],
            "uncounted": list(self.uncounted),
        }

    def __repr__(self) -> str:
        return f"Cost(parameters={self.parameters}, macs={self.macs}, flops={self.flops})"

    def __str__(self) -> str:
        layers = [(layer.name, layer.parameters, layer.macs, layer.flops) for layer in self.layers]
        table = _table(layers, ("total", self.parameters, self.macs, self.flops))
        return table + (f"\nnot counted: {', '.join(self.uncounted)}" if self.uncounted else "")


def cost(model: nn.Module, example: Any) -> Cost:
    """Count what `model` costs for one image of the batch `example`, in evaluation mode; the model stays as it is.

    The batch size is the first dimension of the first tensor in `example`.

    >>> from torch import nn
    >>> print(cost(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), torch.zeros(1, 4)))
    layer  parameters  MACs  FLOPs
    0              10     8     14
    total          10     8     14
    """
    images = _batch_size(example)
    with _attention_in_parts(), _running_modules(model) as running:
        counter, _ = watch(model, example, lambda: _Counter(model, running), training=False)
    return Cost(tuple(_layers(model, counter.work, images)), tuple(sorted(counter.uncounted)))


class _Counter(Watcher):
    """Adds up the work of each operator under the name of the layer that it belongs to."""

    def __init__(self, model: nn.Module, running: list[str]) -> None:
        super().__init__(model)
        self.work: defaultdict[str, Work] = defaultdict(lambda: Work(0, 0))
        self.uncounted: set[str] = set()
        self._running = running
        # A linear layer multiplies by a view of its weight; holding the view keeps its id from being used again.
        self._views: dict[int, tuple[Tensor, str]] = {}

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if func.is_view:
            self._follow_view(args[0], out)
        elif func in RULES:
            layer = self._layer(args)
            self.work[layer] = self.work[layer].plus(RULES[func](args, out))
        elif _computes(func, args, kwargs):
            self.uncounted.add(str(func.overloadpacket))

    def _follow_view(self, source: Any, out: Any) -> None:
        name = self._parameter_name(source)
        if name is not None:
            self._views.update((id(view), (view, name)) for view in pytree.tree_leaves(out))

    def _parameter_name(self, tensor: Any) -> str | None:
        return self._views[id(tensor)][1] if id(tensor) in self._views else self.name_of(tensor)

    def _layer(self, args: tuple[Any, ...]) -> str:
        # From the back: where an input is a parameter too, it stands before the weight that multiplies it.
        names = (self._parameter_name(arg) for arg in reversed(args) if isinstance(arg, Tensor))
        name = next((name for name in names if name is not None), None)
        if name is not None:
            return _owner(name)
        return (self._running[-1] if self._running else "") or _FUNCTIONAL


def _computes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if not _FREE_TAGS.isdisjoint(func.tags) or func.overloadpacket in FREE:
        return False
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves((args, kwargs)))


def _owner(parameter_name: str) -> str:
    return parameter_name.rpartition(".")[0] or _WHOLE_MODEL


@contextlib.contextmanager
def _attention_in_parts() -> Iterator[None]:
    """Have attention layers call the operators that have rules, not one that computes the whole layer."""
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _running_modules(model: nn.Module) -> Iterator[list[str]]:
    """The names of the modules of `model` that are running at this moment, the innermost last."""
    names = {id(module): name for name, module in model.named_modules()}
    running: list[str] = []

    def enter(module: nn.Module, inputs: Any) -> None:
        if id(module) in names:
            running.append(names[id(module)])

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        if id(module) in names:
            running.pop()

    # Hooks for all modules rather than on these ones: the model stays untouched.
    entering = register_module_forward_pre_hook(enter)
    leaving = register_module_forward_hook(leave, always_call=True)
    try:
        yield running
    finally:
        entering.remove()
        leaving.remove()


def _layers(model: nn.Module, work: dict[str, Work], images: int) -> Iterator[LayerCost]:
    parameters: defaultdict[str, int] = defaultdict(int)
    for name, parameter in model.named_parameters():
        parameters[_owner(name)] += parameter.numel()
    for name in (*(name or _WHOLE_MODEL for name, _ in model.named_modules()), _FUNCTIONAL):
        macs, flops = work.get(name, Work(0, 0))
        if parameters[name] or flops:
            yield LayerCost(name, parameters[name], macs // images, flops // images)


def _batch_size(example: Any) -> int:
    tensors = [leaf for leaf in pytree.tree_leaves(arguments(example)) if isinstance(leaf, Tensor)]
    if not tensors or tensors[0].dim() == 0 or tensors[0].shape[0] == 0:
        raise ExampleError(
            "the example holds no image to count for: pass a tensor, a tuple or a dict whose first tensor is a batch "
            "of at least one"
        )
    return tensors[0].shape[0]


def _table(layers: Iterable[tuple[str, int, int, int]], total: tuple[str, int, int, int]) -> str:
    rows = [_HEADER, *((name, *(f"{number:,}" for number in numbers)) for name, *numbers in (*layers, total))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_table_line(row, widths) for row in rows)


def _table_line(cells: tuple[str, ...], widths: list[int]) -> str:
    name, *numbers = cells
    return "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
