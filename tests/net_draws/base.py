"""What a kind of step is, and what the ways to draw one have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.net_choices import Choices
from tests.net_layers import OTHER_AT_ZERO, ZERO_AT_ZERO
from tests.net_scene import Scene
from tests.net_spec import Step

Accept = Callable[[Scene, int], bool]
Draw = Callable[[Choices, Scene, int], Step]


@dataclass(frozen=True)
class Kind:
    """A kind of step: which tensors it can read first, how it is drawn, how often beside the others."""

    accept: Accept
    draw: Draw
    weight: int

    def __call__(self, choices: Choices, scene: Scene, index: int) -> Step:
        return self.draw(choices, scene, index)


def kind(accept: Accept, weight: int = 2) -> Callable[[Draw], Kind]:
    """The function becomes a kind of step, which is drawn once it stands in the table of `tests.net_draws`."""
    return lambda draw: Kind(accept, draw, weight)


def any_act(choices: Choices) -> str:
    """Mostly an activation that keeps zeros, because that is what networks mostly have."""
    return choices.pick(list(ZERO_AT_ZERO)) if choices.integer(0, 3) < 3 else choices.pick(list(OTHER_AT_ZERO))
