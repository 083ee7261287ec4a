"""A model as one graph that takes any number of images: what every export starts from."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils import _pytree as pytree

from otprune.abstract import arguments
from otprune.deploy.folding import fold_batch_norms
from otprune.errors import DeployError
from otprune.location import user_location

BATCH = "batch"
TRACED_WITH = 2  # images: one alone is taken for a number that never changes


def program(model: nn.Module, example: Any) -> ExportedProgram:
    """The model in evaluation mode and single precision on the CPU, as `torch.export` has it; `model` is untouched.

    Batch norms are folded first, whatever the runtime: torch never folds them, and others do as they convert or load,
    each by rules of its own. So every file holds the same network, and no runtime has to find out what can be folded.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> traced = program(net, torch.zeros(1, 3, 8, 8))
    >>> traced.module()(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 4, 6, 6])
    """
    single = in_single_precision(fold_batch_norms(model, example))
    args, kwargs = arguments(images(example, TRACED_WITH))
    shapes = _any_number(args, kwargs)
    try:
        traced = _either_way(partial(torch.export.export, single, args, kwargs, dynamic_shapes=shapes))
    except Exception as error:  # whatever torch's tracer stumbles over
        raise DeployError(
            f"{type(model).__name__} cannot be exported, since torch.export cannot trace it for any number of images: "
            f"{told(error)} ({user_location(error)})"
        ) from error
    for node in traced.graph.nodes:
        node.meta.pop("stack_trace", None)  # or every file would tell where on this machine the model's code lies
    return traced


def in_single_precision(model: nn.Module) -> nn.Module:
    """The same module, moved to the CPU and made single precision, which is what all runtimes compute in.

    >>> in_single_precision(nn.Linear(1, 1).double()).weight.dtype
    torch.float32
    """
    return model.to("cpu", torch.float32).eval()


def images(example: Any, count: int, seed: int = 0) -> Any:
    """Inputs like the example, of another number of images, drawn at random and the same for the same seed.

    Only floating-point tensors are drawn; of others the first entry is repeated.

    >>> images((torch.zeros(1, 3, 8, 8), True), 5)[0].shape
    torch.Size([5, 3, 8, 8])
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0:
            return tensor.cpu()
        if tensor.is_floating_point():
            return torch.randn(count, *tensor.shape[1:], generator=generator)
        return tensor[:1].cpu().repeat(count, *(1,) * (tensor.dim() - 1))

    return pytree.tree_map_only(Tensor, drawn, example)


def _either_way(export: Callable[..., ExportedProgram]) -> ExportedProgram:
    """Run the model's code, or read it: some code runs in one of them alone. `len(x)` is fixed where it is run."""
    try:
        return export(strict=False)
    except Exception as error:
        try:
            return export(strict=True)
        except Exception:
            raise error from None


def _any_number(*inputs: Any) -> ShapesCollection:
    """That the first size of every tensor among the inputs is the number of images."""
    shapes = ShapesCollection()
    for tensor in pytree.tree_leaves(inputs):
        if isinstance(tensor, Tensor) and tensor.dim():
            shapes[tensor] = {0: Dim(BATCH)}
    return shapes


def told(error: Exception) -> str:
    """What an error of another package says, without its advice.

    >>> told(ValueError("no such operator\\n\\nsee also\\nmany pages"))
    'no such operator see also'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__
