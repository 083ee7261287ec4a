"""The model's tensors as the planner reads them: by name, in float64."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from otprune.tensors import named_tensors

Array = NDArray[np.float64]


class Weights:
    """Parameters and buffers of a model by name, converted when first asked for."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors: dict[str, Tensor] = named_tensors(model)
        self._arrays: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = self.tensors[name].detach().double().cpu().numpy()
        return self._arrays[name]

    def get(self, name: str | None, default: float, size: int) -> Array:
        """The tensor, or a constant in its place where the layer has none."""
        return np.full(size, default) if name is None else self[name]
