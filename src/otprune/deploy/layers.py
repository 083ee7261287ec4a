"""The layers that a network runs: convolutions and linear ones, each with the size of its input and its channels."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from otprune.abstract import Watcher, watch

aten = torch.ops.aten

DEPTHWISE = 0
"""As the number of groups: as many as there are channels."""


@dataclass(frozen=True)
class Shape:
    """All of a layer that pruning leaves as it is. A linear layer is a convolution over no dimensions.

    >>> Shape(batch=1, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1).is_linear
    True
    """

    batch: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def is_linear(self) -> bool:
        """Whether it is a linear layer, `batch` being the vectors that it is given."""
        return not self.kernel

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Shape":
        """Read what `to_dict` made."""
        made: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return cls(**made)


@dataclass(frozen=True)
class Layer:
    """One call of a layer: its name in the model, its shape, and how many channels it reads and writes."""

    name: str
    shape: Shape
    inputs: int
    outputs: int


def layers_of(model: nn.Module, example: Any) -> list[Layer]:
    """The convolutions and linear layers that run, in their order; transposed convolutions are not among them.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(512, 10))
    >>> found = layers_of(net, torch.zeros(1, 3, 8, 8))
    >>> [(layer.name, layer.shape.size, layer.inputs, layer.outputs) for layer in found]
    [('0', (8, 8), 3, 8), ('2', (), 512, 10)]
    """
    watcher, _ = watch(model, example, lambda: _Layers(model), training=False)
    return watcher.found


class _Layers(Watcher):
    """Notes every convolution, and every product with a parameter."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.found: list[Layer] = []
        self._transposed: dict[int, tuple[Tensor, str]] = {}  # held, so that no id is used again

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if func is aten.t.default and self.name_of(args[0]) is not None:
            self._transposed[id(out)] = (out, self.name_of(args[0]) or "")
        elif func is aten.convolution.default and not args[6]:
            self.found.append(_convolution(_owner(self.name_of(args[1])), args))
        elif func in (aten.addmm.default, aten.mm.default) and id(args[-1]) in self._transposed:
            self.found.append(_linear(_owner(self._transposed[id(args[-1])][1]), *args[-2:]))
        elif func is aten.linear.default:
            self.found.append(_linear(_owner(self.name_of(args[1])), args[0], args[1].T))


def _convolution(name: str, args: tuple[Any, ...]) -> Layer:
    images, weight = args[:2]
    outputs, inputs, groups = weight.shape[0], images.shape[1], args[8]
    shape = Shape(
        batch=images.shape[0],
        size=tuple(images.shape[2:]),
        kernel=tuple(weight.shape[2:]),
        stride=tuple(args[3]),
        padding=tuple(args[4]),
        dilation=tuple(args[5]),
        groups=DEPTHWISE if groups == inputs == outputs and groups > 1 else groups,
    )
    return Layer(name, shape, inputs, outputs)


def _linear(name: str, vectors: Tensor, weight: Tensor) -> Layer:
    inputs, outputs = weight.shape
    shape = Shape(vectors.numel() // inputs, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1)
    return Layer(name, shape, inputs, outputs)


def _owner(parameter: str | None) -> str:
    return (parameter or "").rpartition(".")[0]
