"""Random networks over every pattern that pruning has to understand: drawn as pure data, built as plain modules.

A `Spec` says all there is to say about a network, and prints; `build` makes the module and `example` its inputs. Batch
norms are called `bn…` in every module, so their names are `steps.<number of the step>.….bn…`, or `auxiliary.bn` in the
head that only train mode reaches.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from tests.checking import Outcome, check_model
from tests.net_choices import Choices, DrawnChoices, RandomChoices
from tests.net_draws import draw_step
from tests.net_draws.convolutions import conv
from tests.net_draws.features import few_values, flatten, global_pool
from tests.net_draws.pointwise import norm_act
from tests.net_scene import WIDTHS, Scene, gammas, module_for
from tests.net_spec import Shape, Spec, Step, make_step

__all__ = [
    "Choices",
    "RandomChoices",
    "RandomNet",
    "Spec",
    "Step",
    "build",
    "check",
    "example",
    "gammas",
    "network_specs",
    "random_mask",
    "random_spec",
    "randomize",
]

MOST_STEPS = 11
BATCH = 2
SIZES = {1: (8, 14), 2: (6, 10), 3: (4, 6)}
Outputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


class RandomNet(nn.Module):
    """Runs the steps of a spec, one after the other, over a growing list of tensors."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.steps = nn.ModuleList(map(module_for, spec.steps))
        self.auxiliary = module_for(spec.auxiliary) if spec.auxiliary else None

    def forward(self, *inputs: Tensor) -> Outputs:
        tensors = list(inputs)
        for step, module in zip(self.spec.steps, self.steps, strict=True):
            made = module(*(tensors[index] for index in step.inputs))
            tensors.extend(made if isinstance(made, tuple) else (made,))
        outputs = [tensors[index] for index in self.spec.outputs]
        if self.training and self.auxiliary is not None and self.spec.auxiliary is not None:
            outputs.append(self.auxiliary(tensors[self.spec.auxiliary.inputs[0]]))
        return self._contained(outputs)

    def _contained(self, outputs: list[Tensor]) -> Outputs:
        if self.spec.container == "dict":
            return {f"out{index}": output for index, output in enumerate(outputs)}
        return outputs[0] if self.spec.container == "tensor" and len(outputs) == 1 else tuple(outputs)


def build(spec: Spec) -> RandomNet:
    """The network of a spec in float64, in train mode as every new module, its weights drawn with the spec's seed.

    >>> spec = random_spec(random.Random(1))
    >>> type(build(spec)).__name__
    'RandomNet'
    """
    with torch.random.fork_rng(devices=[]):
        model = RandomNet(spec).double()
    randomize(model, spec.seed)
    return model


def example(spec: Spec) -> tuple[Tensor, ...]:
    """Inputs for the network of a spec, always the same ones.

    >>> example(Spec(inputs=((3, 6, 6),), steps=(), outputs=()))[0].shape
    torch.Size([2, 3, 6, 6])
    """
    generator = torch.Generator().manual_seed(spec.seed + 1)
    return tuple(torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64) for shape in spec.inputs)


def randomize(model: nn.Module, seed: int) -> None:
    """Draw every parameter and buffer: batch norms far from the identity, weights that keep the signal's size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
                if tensor.is_floating_point():
                    tensor.copy_(_drawn(module, name, tensor, generator))


def _drawn(module: nn.Module, name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    normal = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    positive = 0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    if isinstance(module, _BatchNorm) and name == "weight":
        return positive * normal.sign()
    if name in ("bias", "running_mean"):
        return 0.5 * normal
    if isinstance(module, _ConvNd | nn.Linear):
        return normal * math.sqrt(1.5 / _fan_in(module))
    return positive


def _fan_in(module: _ConvNd | nn.Linear) -> float:
    if isinstance(module, _ConvNd) and module.transposed:
        return module.weight[:, 0].numel() / module.groups
    return module.weight[0].numel()


def random_spec(rng: random.Random) -> Spec:
    """A network drawn by a random number generator.

    >>> random_spec(random.Random(7)) == random_spec(random.Random(7))
    True
    """
    return _draw_spec(RandomChoices(rng))


@st.composite
def network_specs(draw: st.DrawFn) -> Spec:
    """Networks drawn by hypothesis: the fewer steps and channels, the simpler."""
    return _draw_spec(DrawnChoices(draw))


def random_mask(choices: Choices, gammas: dict[str, int]) -> dict[str, list[int]]:
    """The channels to be zeroed in each batch norm; sometimes the same ones wherever the widths are the same.

    >>> random_mask(RandomChoices(random.Random(0)), {"steps.0.bn": 4, "steps.1.bn": 4})
    {'steps.0.bn': [0, 2], 'steps.1.bn': [1, 2, 3]}
    """
    agree = choices.flag()
    of_width: dict[int, list[int]] = {}
    mask: dict[str, list[int]] = {}
    for name, width in gammas.items():
        zeroed = of_width[width] if agree and width in of_width else _zeroed(choices, width)
        of_width[width] = zeroed
        mask[name] = zeroed
    return mask


def _zeroed(choices: Choices, width: int) -> list[int]:
    few = max(1, width // 4)
    amount = choices.pick([0, few, width // 2, width // 2, max(width - 1, 0), width])
    if amount == width:
        return list(range(width))
    left = list(range(width))
    return sorted(left.pop(choices.integer(0, len(left) - 1)) for _ in range(amount))


def _draw_spec(choices: Choices) -> Spec:
    inputs = _draw_inputs(choices)
    scene = Scene(inputs=len(inputs), shapes=list(inputs), unread=set(range(len(inputs))))
    while len(scene.steps) < MOST_STEPS and choices.together(lambda some: _extend(some, scene)):
        pass
    outputs = _draw_outputs(choices, scene)
    return Spec(
        inputs=inputs,
        steps=tuple(scene.steps),
        outputs=outputs,
        container=choices.pick(["tensor", "tensor", "dict", "tuple"] if len(outputs) == 1 else ["tuple", "dict"]),
        auxiliary=_draw_auxiliary(choices, scene),
        seed=choices.integer(0, 999),
    )


def _extend(choices: Choices, scene: Scene) -> bool:
    """Add a step, or say that there are enough."""
    if choices.integer(0, 11) == 0:
        return False
    if step := draw_step(choices, scene):
        scene.add(step)
    return True


def _draw_inputs(choices: Choices) -> tuple[Shape, ...]:
    dims = choices.pick([2, 2, 2, 2, 1, 1, 3, 0])
    first = (choices.integer(1, 4), *(choices.integer(*SIZES[dims]) for _ in range(dims)))
    if dims == 0:
        first = (choices.integer(4, 12),)
    others = [_another_input(choices, first) for _ in range(choices.pick([0, 0, 0, 1, 2]))]
    return (first, *others)


def _another_input(choices: Choices, first: Shape) -> Shape:
    """An input that can meet the first one: of the same shape, of the same size, or features that modulate it."""
    channels = choices.integer(1, 4)
    return choices.pick([first, (channels, *first[1:]), (choices.integer(*WIDTHS),)])


def _draw_outputs(choices: Choices, scene: Scene) -> tuple[int, ...]:
    made = list(range(len(scene.shapes) - 1, scene.inputs - 1, -1))
    leaves = [index for index in made if index in scene.unread]
    chosen = [_behind_a_norm(choices, scene, leaves), *(index for index in leaves[1:3] if choices.flag())]
    outputs = [_with_head(choices, scene, index) for index in chosen]
    if made and choices.integer(0, 7) == 7:
        outputs.append(choices.pick(made))
    return tuple(dict.fromkeys(outputs))


def _behind_a_norm(choices: Choices, scene: Scene, leaves: list[int]) -> int:
    """The latest leaf, behind a batch norm if it does not hang on one yet: a network must have something to prune."""
    latest = leaves[0] if leaves else 0
    return latest if latest in scene.normed else scene.add(norm_act(choices, scene, latest))


def _with_head(choices: Choices, scene: Scene, index: int) -> int:
    """The tensor that is handed out: as it is, or behind a convolution or a linear layer."""
    head = choices.pick(["none", "conv", "pool", "flatten"])
    if head == "none":
        return index
    if scene.dims(index) and head == "conv":
        return scene.add(conv(choices, scene, index))
    if scene.dims(index):
        flat = flatten if head == "flatten" and few_values(scene, index) else global_pool
        index = scene.add(flat(choices, scene, index))
    classes = scene.width(choices)
    return scene.add(
        make_step("linear", [index], cin=scene.channels(index), cout=classes, bias=True, bn=False, act="none")
    )


def _draw_auxiliary(choices: Choices, scene: Scene) -> Step | None:
    if choices.integer(0, 4) < 4:
        return None
    index = choices.pick(scene.where(lambda shape: True))
    return make_step(
        "auxiliary_head", [index], cin=scene.channels(index), mid=scene.width(choices), classes=choices.integer(2, 4)
    )


def check(spec: Spec, mask: Mapping[str, list[int]]) -> Outcome:
    """Prune a drawn network by mask and compare it with the masked one; raise where they differ."""
    return check_model(build(spec), example(spec), mask)
