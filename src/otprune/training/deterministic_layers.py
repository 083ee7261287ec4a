"""Layers whose gradients a GPU sums up in any order: some are replaced by others that do the same, the rest are named.

Torch's compiler sums up the gradients of max pools in order where it is told to, and so are those of selected channels.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from otprune.errors import TrainingError
from otprune.location import innermost_module

_REFUSAL = re.compile(r"(\w+) does not have a deterministic implementation")


class AveragesInOrder(nn.Module):
    """An adaptive average pool as two products with matrices, whose gradients are products too.

    >>> images = torch.rand(1, 2, 8, 5)
    >>> torch.allclose(AveragesInOrder((3, 5))(images), nn.AdaptiveAvgPool2d((3, 5))(images))
    True
    """

    def __init__(self, size: tuple[int | None, int | None]) -> None:
        super().__init__()
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        """The averages, computed in fp32."""
        down, across = images.shape[-2:]
        wanted = (self.size[0] or down, self.size[1] or across)
        if wanted == (down, across):
            return images
        exact = images.double() if images.dtype == torch.float64 else images.float()
        rows, columns = _averaging(exact, down, wanted[0]), _averaging(exact, across, wanted[1])
        return (rows @ exact @ columns.T).to(images.dtype)


def train_in_order(model: nn.Module) -> None:
    """Replace the layers of a model that have no deterministic gradient on a GPU by others that do the same.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(7), nn.AdaptiveAvgPool2d(1))
    >>> train_in_order(net)
    >>> net
    Sequential(
      (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
      (1): AveragesInOrder()
      (2): AdaptiveAvgPool2d(output_size=1)
    )
    """
    for name, module in [*model.named_modules(remove_duplicate=False)]:
        if type(module) is nn.AdaptiveAvgPool2d and (size := _pair(module.output_size)) != (1, 1):  # that is a mean
            model.set_submodule(name, AveragesInOrder(size))


@contextmanager
def refusals_by_layer(model: nn.Module, pixels: Tensor) -> Iterator[None]:
    """Where torch has no deterministic way to do something inside, raise an error that names the layers that do it.

    `pixels` are two images or more.

    >>> with refusals_by_layer(nn.Sequential(nn.AdaptiveMaxPool2d(2)), torch.zeros(2, 3, 4, 4)):
    ...     raise RuntimeError("adaptive_max_pool2d_backward_cuda does not have a deterministic implementation ...")
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: layer 0 cannot be trained deterministically: torch has no ...
    """
    try:
        yield
    except RuntimeError as error:
        found = _REFUSAL.search(str(error))
        if found is None:
            raise
        layers = _callers(found[1], model, pixels[:2])
        which = f"layer {' and '.join(layers)}" if layers else "the model"
        raise TrainingError(
            f"{which} cannot be trained deterministically: torch has no deterministic {found[1]} for "
            f"{pixels.device.type}. Use another layer there, or do without --deterministic."
        ) from error


def _callers(kernel: str, model: nn.Module, pixels: Tensor) -> list[str]:
    """The layers that call the operator of a kernel: adaptive_max_pool2d, say, of adaptive_max_pool2d_backward_cuda."""
    model = model.module if isinstance(model, DistributedDataParallel) else model  # no need to ask the other processes
    first = next(model.parameters(), pixels)
    operator = re.split(r"_(?:backward|forward|cuda|out)", kernel)[0].replace("pooling", "pool")
    names = {id(module): name for name, module in model.named_modules()}
    model.eval()  # statistics of batch norms stay
    with _Callers(operator) as calls, torch.no_grad(), _in_any_order():
        model(pixels.to(first))
    return sorted({names.get(id(module), type(module).__name__) for module in calls.found})


@contextmanager
def _in_any_order() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class _Callers(TorchDispatchMode):
    """Notes the modules that call an operator."""

    def __init__(self, operator: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operator, self.found = operator, list[nn.Module]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = function.overloadpacket.__name__.lstrip("_")
        if named.startswith(self.operator) and (module := innermost_module()) is not None:
            self.found.append(module)
        return function(*args, **(kwargs or {}))


def _averaging(like: Tensor, size: int, wanted: int) -> Tensor:
    """A row for each average, with the weights of what it is taken of."""
    average, place = (torch.arange(count, device=like.device) for count in (wanted, size))
    start, end = average * size // wanted, ((average + 1) * size + wanted - 1) // wanted
    inside = (place >= start[:, None]) & (place < end[:, None])
    return inside.to(like.dtype) / (end - start)[:, None]


def _pair(size: Any) -> tuple[int | None, int | None]:
    return (size[0], size[1]) if isinstance(size, tuple | list) else (size, size)
