"""Whether a penalty can come to anything, before hours are spent on a training with one."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import otprune as ot
from otprune.errors import ModelError
from otprune.thresholds import Thresholds

WAY_OUT = "Train without a penalty, --lam 0, or change the model"


def require_something_to_prune(model: nn.Module, example: Any, name: str) -> None:
    """Refuse a model none of whose scaling factors is trained, or of which no channel can go, and say why.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4))
    >>> require_something_to_prune(net, torch.zeros(1, 1, 8, 8), "my.py:net")
    Traceback (most recent call last):
        ...
    otprune.errors.ModelError: my.py:net: none of its 4 batch-norm channels can go, whatever becomes of their ...
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.affine]
    if not any(norm.weight.requires_grad for norm in norms):
        raise ModelError(
            f"{name}: no scaling factor of its {len(norms)} batch norms is trained, so a penalty on them does nothing: "
            f"requires_grad is off. Turn it on, with requires_grad_(True). {WAY_OUT}."
        )
    plan = ot.plan(model, example, _Everything())
    if not plan.removed and all(len(layer.kept) == layer.channels for layer in plan.layers):
        channels = sum(layer.channels for layer in plan.layers)
        why = f": {plan.frozen[0]}" if plan.frozen else ""
        raise ModelError(
            f"{name}: none of its {channels} batch-norm channels can go, whatever becomes of their scaling "
            f"factors{why}. {WAY_OUT}; otprune inspect {name} tells what each layer stays for."
        )


class _Everything:
    """Finds all channels negligible."""

    def thresholds(self, gammas: Mapping[str, Tensor]) -> Thresholds:
        """Above every γ."""
        return Thresholds({name: 1.0 + float(gamma.abs().max()) for name, gamma in gammas.items()}, branch=math.inf)

    def describe(self) -> dict[str, Any]:
        """It is never saved."""
        return {}
