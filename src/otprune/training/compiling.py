"""Functions compiled for a GPU: once for every shape, however many networks are trained."""

import functools
from collections.abc import Callable
from typing import Any

import torch

COMPILED_NETWORKS = 10_000
# A step is many small kernels: those that need nothing of each other are launched as one.
COMBINED = {"combo_kernels": True}


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one compiled graph; if it is differentiated, gradients of weights are computed aside.

    >>> compiled(torch.relu) is compiled(torch.relu)
    True
    """
    from otprune.training.side_gradients import WeightGradientsAside  # it loads torch's compiler, which takes a while

    options: dict[str, Any] = {"post_grad_custom_post_pass": WeightGradientsAside(), **COMBINED}
    result = torch.compile(function, fullgraph=True, dynamic=False, options=options)
    # Each pruned network of a sweep has shapes of its own, and torch gives up at the ninth unless told otherwise.
    enough = torch._dynamo.config.patch(
        recompile_limit=COMPILED_NETWORKS, accumulated_recompile_limit=COMPILED_NETWORKS
    )
    patched: Callable[..., Any] = enough(result)
    return patched
