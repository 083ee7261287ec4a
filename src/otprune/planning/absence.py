"""Does a model's own code go along when layers of it are gone?"""

from collections import Counter
from collections.abc import Collection
from typing import Any

from torch import nn

from otprune.absent import Removed
from otprune.abstract import put_back, watch
from otprune.channels.operators import Operators, Signature
from otprune.errors import OtpruneError


class Absence:
    """Tells whether a model, without some layers, still does the rest of what it did, in either mode.

    Its code may ask what a layer returns for its shape, or whether it is a tensor at all.

    >>> import torch
    >>> goes_along = Absence(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), torch.zeros(1, 1))
    >>> goes_along(["0"])
    True
    """

    def __init__(self, model: nn.Module, example: Any) -> None:
        self._model, self._example = model, example
        self._whole: dict[bool, Counter[Signature] | None] = {}

    def __call__(self, layers: Collection[str]) -> bool:
        return all(self._does_the_rest(layers, training) for training in (True, False))

    def _does_the_rest(self, layers: Collection[str], training: bool) -> bool:
        if training not in self._whole:
            self._whole[training] = self._run(training)
        whole = self._whole[training]
        with put_back(self._model):
            _remove(self._model, layers)
            rest = self._run(training)
        return whole is None or (rest is not None and rest <= whole)

    def _run(self, training: bool) -> Counter[Signature] | None:
        """The operators of one run; None where the model does not run."""
        try:
            operators, _ = watch(self._model, self._example, lambda: Operators(self._model), training=training)
        except OtpruneError:
            return None
        return operators.signatures


def _remove(model: nn.Module, layers: Collection[str]) -> None:
    gone = {id(model.get_submodule(name)) for name in layers}
    for module in list(model.modules()):
        children = module._modules
        children.update({name: Removed() for name, child in children.items() if id(child) in gone})
