"""A random network as pure data: inputs, steps, outputs. Printable, and the same again after a trip through JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Shape = tuple[int, ...]
"""Channels first, without the batch: (channels, height, width), or (features,) where nothing is spatial."""

Option = bool | int | str | tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One module of the network: what it is, which tensors it reads and how many it makes.

    >>> print(make_step("activation", [0], act="relu"))
    activation(0) act=relu
    """

    kind: str
    inputs: tuple[int, ...]
    options: tuple[tuple[str, Option], ...] = ()
    outputs: int = 1

    def __str__(self) -> str:
        read = ", ".join(map(str, self.inputs))
        return " ".join([f"{self.kind}({read})", *(f"{name}={value}" for name, value in self.options)])

    def __getitem__(self, name: str) -> Option:
        return dict(self.options)[name]


@dataclass(frozen=True)
class Spec:
    """A whole network. Tensors are numbered: the inputs first, then what each step makes, in order.

    >>> spec = Spec(inputs=((3, 6, 6),), steps=(make_step("activation", [0], act="relu"),), outputs=(1,))
    >>> Spec.from_json(spec.to_json()) == spec
    True
    >>> print(spec)
    inputs 0:(3, 6, 6)
    1 = activation(0) act=relu
    tensor of 1, seed 0
    """

    inputs: tuple[Shape, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    container: str = "tensor"
    auxiliary: Step | None = None
    seed: int = 0

    def __str__(self) -> str:
        lines = ["inputs " + ", ".join(f"{index}:{shape}" for index, shape in enumerate(self.inputs))]
        lines += [f"{', '.join(map(str, made))} = {step}" for step, made in zip(self.steps, self.made(), strict=True)]
        lines += [f"in training also {self.auxiliary}"] if self.auxiliary else []
        return "\n".join([*lines, f"{self.container} of {', '.join(map(str, self.outputs))}, seed {self.seed}"])

    def made(self) -> list[range]:
        """The numbers of the tensors that each step makes."""
        ranges, first = [], len(self.inputs)
        for step in self.steps:
            ranges.append(range(first, first + step.outputs))
            first += step.outputs
        return ranges

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Spec:
        """The spec that `to_json` wrote."""
        data = json.loads(text)
        return Spec(
            inputs=tuple(tuple(shape) for shape in data["inputs"]),
            steps=tuple(map(_step_from, data["steps"])),
            outputs=tuple(data["outputs"]),
            container=data["container"],
            auxiliary=_step_from(data["auxiliary"]) if data["auxiliary"] else None,
            seed=data["seed"],
        )


def make_step(kind: str, inputs: list[int], **options: Option) -> Step:
    """A step with its options by name.

    >>> make_step("activation", [0], act="relu")["act"]
    'relu'
    """
    return Step(kind, tuple(inputs), tuple(options.items()))


def _step_from(data: Mapping[str, Any]) -> Step:
    options = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in data["options"])
    return Step(data["kind"], tuple(data["inputs"]), options, data["outputs"])
