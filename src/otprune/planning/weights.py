"""The model's tensors as the planner reads them: by name, in float64."""

import copy
import hashlib

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from otprune.tensors import named_tensors

Array = NDArray[np.float64]


class Weights:
    """Parameters and buffers of a model by name, converted when first asked for; `used` are those that were.

    >>> weights = Weights(nn.Linear(2, 1))
    >>> weights["weight"].shape, weights.used, weights.afresh().used
    ((1, 2), {'weight'}, set())
    """

    def __init__(self, model: nn.Module) -> None:
        self.tensors: dict[str, Tensor] = named_tensors(model)
        self.used: set[str] = set()
        self._arrays: dict[str, Array] = {}

    def afresh(self) -> "Weights":
        """The same tensors, none of them used yet."""
        other = copy.copy(self)
        other.used = set()
        return other

    def digests(self) -> dict[str, str]:
        """Digests of the values of all that were used."""
        return {name: self.digest(name) for name in sorted(self.used)}

    def digest(self, name: str) -> str:
        """A digest of a tensor's values, whatever their type."""
        return hashlib.sha256(self[name].tobytes()).hexdigest()

    def __getitem__(self, name: str) -> Array:
        self.used.add(name)
        if name not in self._arrays:
            self._arrays[name] = self.tensors[name].detach().double().cpu().numpy()
        return self._arrays[name]

    def get(self, name: str | None, default: float, size: int) -> Array:
        """The tensor, or a constant in its place where the layer has none."""
        return np.full(size, default) if name is None else self[name]
