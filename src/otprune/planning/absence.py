"""Does a model's own code go along when layers of it are gone?"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.absent import Absent, Removed
from otprune.abstract import is_noise, put_back, watch
from otprune.channels.graph import Signature
from otprune.channels.operators import Operators, functions_of
from otprune.errors import OtpruneError
from otprune.location import user_location


class Absence:
    """Tells what a model has against the absence of some layers: whether it still does the rest of what it did.

    Its code may ask what a layer returns for its shape, or whether it is a tensor at all. `operators` are those that
    the whole model runs with and without `training`, None where it does not run.

    >>> import torch
    >>> from otprune.channels.trace import trace
    >>> net, x = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)), torch.zeros(1, 1)
    >>> print(Absence(net, x, trace(net, x).operators).objection(["0", "1"]))
    None
    """

    def __init__(self, model: nn.Module, example: Any, operators: Mapping[bool, Counter[Signature] | None]) -> None:
        self._model, self._example, self._operators = model, example, operators

    def objection(self, layers: Collection[str]) -> str | None:
        """Why these layers cannot go, or None."""
        for training, whole in self._operators.items():
            with self._without(layers):
                rest = self._run(training)
            if whole is not None and isinstance(rest, OtpruneError):
                return _reason(rest)
            if whole is not None and isinstance(rest, Operators) and not rest.signatures <= whole:
                return "the model's code does something else where it is gone"
        return self._objection_in_earnest([*layers, *self.idle(layers)])

    def idle(self, layers: Collection[str]) -> list[str]:
        """The modules that only make noise, in the user's own code, and without these layers have nothing to put it on.

        They may count on a tensor in training, and have to go too.
        """
        noise = {name: module for name, module in self._model.named_modules() if _makes_own_noise(module)}
        if not noise:
            return []
        with self._without(layers), _noting_absent_results(noise) as results:
            self._run(training=True)
        return [name for name, absent in results.items() if absent and all(absent)]

    def _objection_in_earnest(self, layers: Collection[str]) -> str | None:
        """What noise adds may fail on a value that is gone; what else it does is a matter of chance."""
        with self._without(layers):
            rest = self._run(training=True, noise=True)
        if isinstance(rest, OtpruneError) and isinstance(self._run(training=True, noise=True), Operators):
            return _reason(rest)
        return None

    def functions(self, layers: Collection[str], training: bool) -> dict[str, int]:
        """How often the rest of the model runs each of torch's functions."""
        with self._without(layers):
            rest = self._run(training)
        return functions_of(s[0] for s in rest.signatures.elements()) if isinstance(rest, Operators) else {}

    @contextmanager
    def _without(self, layers: Collection[str]) -> Iterator[None]:
        gone = {id(self._model.get_submodule(name)) for name in layers}
        with put_back(self._model):
            for module in list(self._model.modules()):
                children = module._modules
                children.update({name: Removed() for name, child in children.items() if id(child) in gone})
            yield

    def _run(self, training: bool, noise: bool = False) -> Operators | OtpruneError:
        """The operators of one run, or why the model does not run."""
        try:
            watcher, _ = watch(
                self._model, self._example, lambda: Operators(self._model), training=training, noise=noise
            )
        except OtpruneError as error:
            return error
        return watcher


def _reason(error: OtpruneError) -> str:
    cause = error.__cause__ or error
    return f"the model's code does not go along: {cause} ({user_location(cause)})"


def _makes_own_noise(module: nn.Module) -> bool:
    """Torch's own modules take whatever they are given."""
    own = not isinstance(module, Removed) and not type(module).__module__.startswith("torch.nn.")
    return own and is_noise(module) and not isinstance(module, _BatchNorm)


@contextmanager
def _noting_absent_results(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, list[bool]]]:
    """For each module, whether what it returned was absent, call by call."""
    results: dict[str, list[bool]] = {name: [] for name in modules}
    handles = [
        module.register_forward_hook(
            lambda module, inputs, out, name=name: results[name].append(isinstance(out, Absent))
        )
        for name, module in modules.items()
    ]
    try:
        yield results
    finally:
        for handle in handles:
            handle.remove()
