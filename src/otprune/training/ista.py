"""Training as Ye et al. (2018) do: plain SGD, and after each step a soft threshold on γ, for each layer one of its own.

Only batch norms whose channels no sum ties to others are penalized, each by what one of its channels costs: ρ·λ_l, ρ
being the λ of the training. λ_l follows the channels that are left, and is found anew before every epoch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from otprune.errors import CheckpointError, TrainingError
from otprune.ista import layer_penalties, untied
from otprune.training import distributed
from otprune.training.batch_loss import Teacher
from otprune.training.data import AnyDataset
from otprune.training.run import EpochRecord, Run, Training
from otprune.training.sgd import Optimization
from otprune.training.step import EpochSums, Step

BARELY_ALIVE = 1e-6


class IstaStep(Step):
    """A step that ends with γ ← sign(γ)·max(|γ| − rate·λ·λ_l, 0) in some layers; `weights` are their λ_l.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    >>> step = IstaStep(net, torch.zeros(1), torch.ones(1), batch=2, layers=["1"])
    >>> step.weights = {"1": 2.0}
    >>> step.begin(rate=0.1, lam=5.0)
    >>> step.load(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> step()
    >>> net[1].weight.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        model: nn.Module,
        mean: Tensor,
        std: Tensor,
        batch: int,
        optimization: Optimization | None = None,
        *,
        layers: Sequence[str],
    ) -> None:
        super().__init__(model, mean, std, batch, optimization)
        self.weights: Mapping[str, float] = dict.fromkeys(layers, 1.0)
        gammas = {name: model.get_submodule(name).get_parameter("weight") for name in layers}
        # λ·λ_l is a tensor on the device, where a captured step finds it again.
        self._penalized = {name: (gamma, torch.zeros_like(self.lam)) for name, gamma in gammas.items()}

    def begin(self, rate: float, lam: float, sums: EpochSums | None = None) -> None:
        """Start an epoch; the penalty is no part of the gradient, so all else is trained as without one."""
        super().begin(rate, 0.0, sums)
        with self._in_order():
            for name, (_, penalty) in self._penalized.items():
                penalty.fill_(lam * self.weights[name])

    @torch.no_grad()
    def _update(self, gradients: Mapping[int, Tensor]) -> None:
        super()._update(gradients)
        for gamma, penalty in self._penalized.values():
            limit = self.rate * penalty
            gamma.sub_(gamma.clamp(-limit, limit))


class IstaRun(Run):
    """A training by ISTA, resumable like any other; whatever `penalized` says, it penalizes untied layers alone.

    >>> from otprune.training.data import load
    >>> from otprune.models import digits_net
    >>> IstaRun(digits_net(), load("digits"), Training(epochs=1, momentum=0.0, augment=False)).done
    False
    """

    step: IstaStep

    def __init__(self, model: nn.Module, data: AnyDataset, training: Training, folder: Path | None = None) -> None:
        if training.momentum:
            raise TrainingError(f"ISTA is plain SGD with a soft threshold: set momentum to 0, not {training.momentum}")
        if distributed.current() is not None:
            raise TrainingError("ISTA trains in one process: start it without torchrun")
        super().__init__(model, data, training, folder)

    def begin_epoch(self) -> None:
        """As any other, with the penalties of the channels that are left at its start."""
        if self._under_way() is None:
            found = layer_penalties(self.model, self._example)
            self.step.weights = {name: found[name] for name in self.step.weights}
        super().begin_epoch()

    def end_epoch(self) -> EpochRecord:
        """As any other; in the end a layer that has lost every channel gets one back, or nothing could pass it."""
        record = super().end_epoch()
        if self.done:
            self._leave_no_layer_empty()
        return record

    def _made_step(self, data: AnyDataset, teacher: Teacher | None) -> IstaStep:
        layers = untied(self.model, self._example)
        return IstaStep(self.model, data.mean, data.std, self.training.batch, self._optimization, layers=layers)

    def _state(self, sums: EpochSums | None) -> dict[str, Any]:
        return super()._state(sums) | {"layer_penalties": dict(self.step.weights)}

    def _take_up(self, state: Mapping[str, Any]) -> None:
        super()._take_up(state)
        found = state.get("layer_penalties", {})
        if found.keys() != self.step.weights.keys():
            raise CheckpointError(
                f"{self.folder}: has penalties of other layers. Use another folder, or the same model."
            )
        self.step.weights = found

    @torch.no_grad()
    def _leave_no_layer_empty(self) -> None:
        for name in self.step.weights:
            gamma = self.model.get_submodule(name).get_parameter("weight")
            if not gamma.any():
                gamma[0] = BARELY_ALIVE
