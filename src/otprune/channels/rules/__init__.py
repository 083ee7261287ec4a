"""One rule for each kind of operator: what it does to labels. Operators without a rule freeze what they read."""

from collections.abc import Callable
from typing import Any

import torch

from otprune.channels.rules import elementwise, mixing, normalizing, pooling, shaping
from otprune.channels.rules.elementwise import pointwise
from otprune.channels.rules.unknown import factory, unknown

Rule = Callable[[Any, Any], None]

RULES: dict[Any, Rule] = {
    torch.ops.aten.empty.memory_format: factory,
    **elementwise.RULES,
    **mixing.RULES,
    **normalizing.RULES,
    **pooling.RULES,
    **shaping.RULES,
}


def rule_for(func: Any) -> Rule:
    """The rule of an operator: its own, the one for all pointwise operators, or the one that freezes."""
    rule = RULES.get(func)
    if rule is not None:
        return rule
    return pointwise if torch.Tag.pointwise in func.tags else unknown
