"""Batch norms folded into the layers before them: in evaluation mode both together are one affine map."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd

from otprune.abstract import Watcher, watch
from otprune.copying import copied
from otprune.inputs import tensors_in
from otprune.surgery import PLANS

aten = torch.ops.aten

# A class that does something of its own in its forward is left alone.
LAYERS = frozenset(
    kind.forward
    for kind in (
        *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    )
)
NORMS = frozenset({_BatchNorm.forward, nn.SyncBatchNorm.forward})
MULTIPLYING = frozenset({aten.convolution.default, aten.t.default, aten.linear.default})


def fold_batch_norms(model: nn.Module, example: Any) -> nn.Module:
    """A copy in evaluation mode, each batch norm folded into the layer before it where it alone reads what that writes.

    Layers are convolutions, transposed or not, and linear ones. Exact but for rounding: the weights are multiplied by
    γ/σ in double precision, and the bias takes the rest. Where the batch norm stood, nothing runs any more, or only the
    layers inside it, such as its activation. One that reads something else stays as it is: a sum, some of the channels,
    what others read too. `model` is untouched.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    >>> x = torch.randn(1, 3, 8, 8)
    >>> folded = fold_batch_norms(net, x)
    >>> folded[1], torch.allclose(folded(x), net(x), atol=1e-6)
    (Identity(), True)
    """
    calls, out = watch(model, example, lambda: _Calls(model), training=False)
    pairs = _pairs(calls, {id(tensor) for tensor in tensors_in(out)})
    memo: dict[int, Any] = {id(norm): copied(rest, {}) for _, norm, rest in pairs}
    biases: dict[int, nn.Parameter] = {}
    for layer, norm, _ in pairs:
        weight, bias = _folded(layer, norm)
        memo[id(layer.weight)] = nn.Parameter(weight, layer.weight.requires_grad)
        biases[id(layer)] = nn.Parameter(bias, layer.weight.requires_grad)
    small = copied(model, memo).eval()
    for layer, bias in biases.items():
        memo[layer].bias = bias
    vars(small).pop(PLANS, None)  # a checkpoint of it would not load into the original class
    return small


class _Call(NamedTuple):
    """One call of a layer or a batch norm: what it was given, what it gave, and its own tensors at the time."""

    source: Any
    out: Any
    weight: Tensor | None
    tensors: list[Tensor]


class _Calls(Watcher):
    """Sees the calls of layers and batch norms, and which operators read each tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.calls: dict[Any, list[_Call]] = defaultdict(list)
        self.readers: dict[int, list[Any]] = defaultdict(list)
        self.operators: Counter[nn.Module] = Counter()  # on tensors that modules call themselves
        self._inside: list[nn.Module] = []
        self.last: dict[int, tuple[tuple[Any, ...], Any]] = {}  # operator that read a tensor: its arguments and result
        self._alive: list[Any] = []  # so that no tensor gets the identity of one that is gone

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        read = {id(tensor) for tensor in tensors_in((args, kwargs))}
        self.operators.update(self._inside[-1:] if read else ())
        for identity in read:
            self.readers[identity].append(func)
            self.last[identity] = (args, out)
        self._alive.append((args, kwargs, out))

    @contextmanager
    def looking(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in _looked_at(self.model):
                if not module._forward_hooks:
                    stack.callback(module.register_forward_pre_hook(self._entered).remove)
                    stack.callback(module.register_forward_hook(self._called).remove)
            yield

    def _entered(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._inside.append(module)

    def _called(self, module: nn.Module, inputs: tuple[Any, ...], out: Any) -> None:
        self._inside.pop()
        tensors = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
        source = inputs[0] if inputs else None
        self.calls[module].append(_Call(source, out, module._parameters.get("weight"), tensors))

    def single(self, module: nn.Module) -> _Call | None:
        """The call of a module that is called once, and whose tensors nothing else reads."""
        calls = self.calls.get(module, [])
        if len(calls) != 1 or any(len(self.readers[id(tensor)]) > 1 for tensor in calls[0].tensors):
            return None
        return calls[0]


def _looked_at(model: nn.Module) -> set[nn.Module]:
    """Layers, batch norms, and what a batch norm with a forward of its own has inside."""
    modules = set(model.modules())
    norms = {module for module in modules if isinstance(module, _BatchNorm)}
    inside = {child for norm in norms if type(norm).forward not in NORMS for child in norm.children()}
    return norms | inside | {module for module in modules if type(module).forward in LAYERS}


def _pairs(calls: _Calls, outputs: set[int]) -> list[tuple[Any, Any, nn.Module]]:
    """Layers whose output a batch norm alone reads, those batch norms, and what is left of each."""
    norms = {}
    for module in calls.calls:
        call = calls.single(module) if _is_settled(module) else None
        rest = call and _rest(calls, module, call)
        if call is not None and rest is not None:
            norms[id(call.source)] = (module, rest)
    found = []
    for module in calls.calls:
        call = calls.single(module) if type(module).forward in LAYERS else None
        if call is None or id(call.out) in outputs or len(calls.readers[id(call.out)]) != 1:
            continue
        if id(call.out) in norms and _multiplies(calls, call):
            found.append((module, *norms[id(call.out)]))
    return found


def _rest(calls: _Calls, norm: Any, call: _Call) -> nn.Module | None:
    """What a batch norm does after normalizing: nothing, its own layers in a row, or else, and that is None."""
    if type(norm).forward in NORMS:
        return nn.Identity()
    before, rest = _normalized(calls, norm, call), {}
    names = {child: name for name, child in norm.named_children()}
    for child in (module for module in calls.calls if module in names):  # in the order they are called
        step = calls.single(child)
        if step is None or step.source is not before:
            return None
        rest[names[child]], before = child, step.out
    return nn.Sequential(OrderedDict(rest)) if before is call.out else None


def _normalized(calls: _Calls, norm: Any, call: _Call) -> Any:
    """The result of the one operator that reads the input and all tensors of a batch norm, if it is a batch norm's."""
    arguments, out = calls.last[id(call.source)]
    read = [id(own) for own in call.tensors if id(own) in calls.last]
    alone = calls.operators[norm] == 1 and all(calls.last[identity][1] is out for identity in read)
    by_statistics = arguments[-1] == norm.eps and not any(argument is True for argument in arguments)
    return out[0] if alone and by_statistics and isinstance(out, tuple) else None


def _is_settled(module: nn.Module) -> bool:
    """Whether it is a batch norm that goes by its running statistics and is told nothing by hooks."""
    return isinstance(module, _BatchNorm) and module.running_var is not None and not module._forward_pre_hooks


def _multiplies(calls: _Calls, call: _Call) -> bool:
    """Whether a layer multiplies its input by its own weight, as it is, along the axis that a batch norm looks at."""
    if call.weight is None or call.out.dim() != call.weight.dim():
        return False
    return set(calls.readers[id(call.weight)]) <= MULTIPLYING


def _folded(layer: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """The weight and the bias of both together."""
    with torch.no_grad():
        scale = (norm.running_var.double() + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        shift = -norm.running_mean.double() if layer.bias is None else layer.bias.double() - norm.running_mean.double()
        bias = shift * scale if norm.bias is None else shift * scale + norm.bias.double()
        weight = _scaled(layer, layer.weight.double(), scale)
        return weight.to(layer.weight.dtype), bias.to(layer.weight.dtype)


def _scaled(layer: Any, weight: Tensor, scale: Tensor) -> Tensor:
    if isinstance(layer, _ConvTransposeNd):  # each group has its own outputs, along the second axis
        groups = weight.unflatten(0, (layer.groups, -1))
        scaled: Tensor = groups * scale.view(layer.groups, 1, -1, *(1,) * (weight.dim() - 2))
        return scaled.flatten(0, 1)
    return weight * scale.view(-1, *(1,) * (weight.dim() - 1))
