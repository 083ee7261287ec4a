"""Whether a file that was exported gives what the model gives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from otprune.abstract import arguments
from otprune.copying import copied
from otprune.deploy.program import images, in_single_precision, told
from otprune.errors import DeployError
from otprune.inputs import tensors_in

Array = NDArray[Any]
Runner = Callable[[Sequence[Array]], Sequence[Array]]
"""Runs the inputs of a model, in their order, through a runtime, and returns its outputs in theirs."""

BATCHES = (1, 3)  # numbers of images that it is checked with, none of them that which it was traced with
TOLERANCE = 1e-4  # of the largest output; single precision, summed in another order, stays well below


def require_agreement(model: nn.Module, example: Any, run: Runner, runtime: str) -> float:
    """Check a runner against the model on random images, one alone and several; return the largest difference.

    Differences are relative to the largest output. One above `TOLERANCE` is an error, and so are outputs that do not
    depend on the images, since they would prove nothing.

    >>> net = nn.Linear(3, 2)
    >>> run = lambda inputs: [net(torch.from_numpy(inputs[0])).detach().numpy()]
    >>> require_agreement(net, torch.zeros(1, 3), run, "torch")
    0.0
    """
    worst = difference(model, example, run, runtime)
    if not worst <= TOLERANCE:
        raise DeployError(
            f"{runtime} does not compute what {type(model).__name__} computes: its outputs differ by {worst:.1e} of "
            f"the largest, and up to {TOLERANCE:g} would be rounding. Nothing was written."
        )
    return worst


def difference(model: nn.Module, example: Any, run: Runner, runtime: str) -> float:
    """The largest difference between what a runner and the model give, relative to the largest output.

    >>> net = nn.Linear(3, 2)
    >>> run = lambda inputs: [2 * net(torch.from_numpy(inputs[0])).detach().numpy()]
    >>> difference(net, torch.zeros(1, 3), run, "torch")
    1.0
    """
    reference = in_single_precision(copied(model, {}))
    found = []
    for seed, count in enumerate(BATCHES):
        inputs = images(example, count, seed)
        arrays = [tensor.numpy().copy() for tensor in tensors_in(inputs)]  # before a model writes into them
        expected = _expected(reference, inputs)
        _require_dependence(expected, _expected(reference, images(example, count, seed + 1)), model)
        found += _differences(expected, _outputs(run, arrays, count, runtime), runtime)
    return float(np.max(found))  # NaN where one is


@torch.no_grad()
def _expected(reference: nn.Module, inputs: Any) -> list[Array]:
    args, kwargs = arguments(inputs)
    return [tensor.numpy() for tensor in tensors_in(reference(*args, **kwargs))]


def _outputs(run: Runner, inputs: Sequence[Array], count: int, runtime: str) -> Sequence[Array]:
    try:
        return run(inputs)
    except Exception as error:  # each runtime has its own
        raise DeployError(f"{runtime} does not run the file with a batch of {count}: {told(error)}") from error


def _require_dependence(outputs: Sequence[Array], of_others: Sequence[Array], model: nn.Module) -> None:
    if all(map(np.array_equal, outputs, of_others)):
        raise DeployError(
            f"{type(model).__name__} gives the same output for different images, so that it gives the same after an "
            f"export would prove nothing: look at its weights, or prune less"
        )


def _differences(expected: Sequence[Array], found: Sequence[Array], runtime: str) -> list[float]:
    shapes = [[output.shape for output in outputs] for outputs in (expected, found)]
    if shapes[0] != shapes[1]:
        raise DeployError(f"{runtime} gives outputs of shapes {shapes[1]} instead of {shapes[0]}")
    return list(map(_relative, expected, found))


def _relative(expected: Array, found: Array) -> float:
    largest = max(np.abs(expected).max(), np.finfo(np.float32).tiny)
    return float(np.abs(expected.astype(np.float64) - found.astype(np.float64)).max() / largest)
