"""Whether a pruned network computes what the masked one does: measured for every run on images of its own."""

import copy

from torch import Tensor, nn

import otprune as ot
from otprune.errors import VerificationError
from otprune.experiments.contents import Exactness
from otprune.plan import PruningPlan

MOST = 1e-6
"""Of the largest output, in fp64: rounding comes to a billionth of that."""


def exactness(model: nn.Module, small: nn.Module, plan: PruningPlan, images: Tensor) -> Exactness | None:
    """Compare a pruned network with the masked one in fp64 on the CPU; raise where they differ.

    None where nothing can be compared: a network that too much was taken from may not depend on its inputs any more,
    and one with numbers of its own may not run in fp64.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> net[1].weight.data[1] = 1e-6
    >>> images = torch.randn(2, 3, 8, 8)
    >>> plan = ot.plan(net, images)
    >>> exactness(net, ot.prune(net, plan), plan, images)["error"] < 1e-12
    True
    """
    both = [copy.deepcopy(network).cpu().double() for network in (model, small)]
    try:
        found = ot.verify(both[0], both[1], plan, images.cpu().double())
    except Exception:  # whatever a model raises that was written for another precision
        return None
    if found.relative > MOST:
        raise VerificationError(
            f"the pruned network computes something else than the masked one ({found}), which is an error of otprune: "
            f"nothing was written; please report the model"
        )
    return Exactness(error=found.error, scale=found.scale)
