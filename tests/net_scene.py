"""A network while it is drawn: the steps so far and the shapes of the tensors they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tests.net_choices import Choices
from tests.net_modules import MODULES
from tests.net_spec import Shape, Step

WIDTHS = (2, 12)
# Autograd keeps neither the output of a convolution nor that of a batch norm, so these may be overwritten.
OVERWRITABLE = ("conv", "batch_norm")


def module_for(step: Step) -> nn.Module:
    """The module of one step.

    >>> from tests.net_spec import make_step
    >>> module_for(make_step("prelu", [0], channels=3)).act
    PReLU(num_parameters=3)
    """
    return MODULES[step.kind](**dict(step.options))


def run(module: nn.Module, shapes: list[Shape]) -> list[Shape]:
    """The shapes that a module makes of these shapes, found by running it: on zeros, faster than on the meta device.

    >>> run(nn.Conv2d(3, 8, kernel_size=3), [(3, 6, 6)])
    [(8, 4, 4)]
    """
    with torch.no_grad():
        made = module.eval()(*(torch.zeros(1, *shape) for shape in shapes))
    return [tuple(tensor.shape[1:]) for tensor in (made if isinstance(made, tuple) else (made,))]


def gammas(model: nn.Module) -> dict[str, int]:
    """The batch norms that have scaling factors, and how many.

    >>> gammas(nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm1d(2, affine=False)))
    {'0': 3}
    """
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    return {name: module.num_features for name, module in norms.items() if module.affine}


@dataclass
class Scene:
    """The tensors there are, and which of them nobody has read yet, may be overwritten, or hang on scaling factors."""

    inputs: int
    shapes: list[Shape]
    steps: list[Step] = field(default_factory=list)
    unread: set[int] = field(default_factory=set)
    overwritable: set[int] = field(default_factory=set)
    normed: set[int] = field(default_factory=set)

    def add(self, step: Step) -> int:
        """Append a step; the number of the last tensor it makes."""
        with torch.random.fork_rng(devices=[]):
            module = module_for(step)
        made = run(module, [self.shapes[index] for index in step.inputs])
        new = range(len(self.shapes), len(self.shapes) + len(made))
        self.steps.append(replace(step, outputs=len(made)))
        self.shapes += made
        self._mark(step, set(new), bool(gammas(module)))
        return new[-1]

    def _mark(self, step: Step, new: set[int], has_gammas: bool) -> None:
        self.unread = (self.unread - set(step.inputs)) | new
        self.overwritable -= set(step.inputs)
        if step.kind in OVERWRITABLE:
            self.overwritable |= new
        if has_gammas or self.normed & set(step.inputs):
            self.normed |= new

    def where(self, accept: Callable[[Shape], bool]) -> list[int]:
        """The tensors of an acceptable shape, latest first, so that simple networks are chains."""
        return [index for index in reversed(range(len(self.shapes))) if accept(self.shapes[index])]

    def source(self, choices: Choices, candidates: list[int]) -> int:
        """One of the candidates: mostly one that is new, so that few tensors are left unread."""
        new = [index for index in candidates if index in self.unread]
        return choices.pick(new) if new and choices.integer(0, 3) < 3 else choices.pick(candidates)

    def same_shape(self, index: int) -> list[int]:
        """The other tensors of the same shape."""
        return [other for other in self.where(lambda shape: shape == self.shapes[index]) if other != index]

    def same_size(self, index: int) -> list[int]:
        """The other tensors of the same height and width, of any number of channels."""
        size = self.shapes[index][1:]
        return [other for other in self.where(lambda shape: shape[1:] == size) if other != index]

    def dims(self, index: int) -> int:
        """How many dimensions beside the channels."""
        return len(self.shapes[index]) - 1

    def channels(self, index: int) -> int:
        """How many channels, or features."""
        return self.shapes[index][0]

    def width(self, choices: Choices) -> int:
        """A number of channels: mostly one that exists already, so that sums are possible."""
        existing = sorted({shape[0] for shape in self.shapes if WIDTHS[0] <= shape[0] <= WIDTHS[1]})
        if existing and choices.flag():
            return choices.pick(existing)
        return choices.integer(*WIDTHS)
