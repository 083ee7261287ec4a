"""The modules that random networks are made of, a file a topic; each file ends in a table of its own."""

from __future__ import annotations

from torch import nn

from tests.net_modules import (
    across,
    concatenation,
    convolutions,
    dense,
    features,
    gates,
    pointwise,
    rearrangement,
    residual,
    sharing,
    sizes,
    sums,
)

MODULES: dict[str, type[nn.Module]] = {
    **across.MODULES,
    **concatenation.MODULES,
    **convolutions.MODULES,
    **dense.MODULES,
    **features.MODULES,
    **gates.MODULES,
    **pointwise.MODULES,
    **rearrangement.MODULES,
    **residual.MODULES,
    **sharing.MODULES,
    **sizes.MODULES,
    **sums.MODULES,
}
"""The module of each kind of step."""
