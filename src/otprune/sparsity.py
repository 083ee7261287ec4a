"""Penalties that drive batch-norm scaling factors γ to zero, attached to any torch optimizer through its own hooks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from .errors import PenaltyError


class _Penalty(ABC):
    """What the penalties share: the γ they act on, λ, and the optimizer they are attached to."""

    def __init__(self, model: nn.Module, lam: float | Tensor, layers: Iterable[str] | None = None) -> None:
        self._gammas = _without_repetition(_chosen(_scaling_factors(model), layers))
        self._handle: RemovableHandle | None = None
        self.lam = lam

    @property
    def lam(self) -> float | Tensor:
        """λ, which may be set anew at any time.

        A tensor without dimensions is kept as it is: changed in place, it changes λ without a CUDA graph being
        captured again, and without being checked again.
        """
        return self._lam

    @lam.setter
    def lam(self, value: float | Tensor) -> None:
        _require_strength("λ", value)
        self._lam = value.detach() if isinstance(value, Tensor) else float(value)

    def attach(self, optimizer: Optimizer) -> Self:
        """Acts on every step of the optimizer from now on."""
        if self._handle is not None:
            raise PenaltyError("the penalty is attached to an optimizer already; call detach() first")
        owners = _owners(optimizer)
        for name, gamma in self._gammas.items():
            if gamma.requires_grad and id(gamma) not in owners:
                raise PenaltyError(
                    f"layer '{name}': its scaling factors are in no parameter group of the optimizer; "
                    "add them to one, or leave the layer out with layers=[...]"
                )
        self._handle = self._register(optimizer)
        return self

    def detach(self) -> None:
        """Leaves the optimizer as it was; without effect on a penalty that is not attached."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def state_dict(self) -> dict[str, float]:
        """What a resumed training needs beside the model and the optimizer."""
        return {"lam": float(self._lam)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Takes λ from a state that `state_dict` returned."""
        if "lam" not in state:
            raise PenaltyError(f"the state holds {sorted(state)}, not λ; pass what state_dict() of a penalty returned")
        _require_strength("λ", state["lam"])
        if isinstance(self._lam, Tensor):
            self._lam.fill_(state["lam"])
        else:
            self.lam = state["lam"]

    @abstractmethod
    def _register(self, optimizer: Optimizer) -> RemovableHandle: ...

    def _trained(self, optimizer: Optimizer) -> list[tuple[Tensor, dict[str, Any]]]:
        """The γ that this step trains, each with its parameter group.

        Looked up at each step: γ may be frozen or added meanwhile, and loading a state replaces the groups.
        """
        owners = _owners(optimizer)
        return [(g, owners[id(g)]) for g in self._gammas.values() if g.requires_grad and id(g) in owners]


class L1Penalty(_Penalty):
    """Adds λ·sign(γ) to the gradient of every γ right before each optimizer step.

    So the step minimizes loss + λ·Σ|γ|, whatever the optimizer: momentum and adaptive rates see the penalty, a
    GradScaler does not scale it, gradient clipping does not clip it, and accumulated gradients get it once a step.
    A γ that the loss does not reach has the penalty as its whole gradient, as the formula says. Frozen γ are left
    alone, and λ = 0 leaves the step as it is.

    `layers` chooses batch norms by name; without it, all of them are penalized.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> penalty = L1Penalty(model, lam=0.5).attach(optimizer)
    >>> optimizer.step()
    >>> model[1].weight.tolist()
    [0.949999988079071, 0.949999988079071]
    """

    def _register(self, optimizer: Optimizer) -> RemovableHandle:
        return optimizer.register_step_pre_hook(self._before_step)

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        # A closure computes the gradients inside the step, so the penalty has to follow it there.
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": self._penalizing(kwargs["closure"], optimizer)}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._penalizing(args[1], optimizer), *args[2:]), kwargs
        self._penalize(optimizer)
        return None

    def _penalizing(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        def penalizing_closure() -> Any:
            loss = closure()
            self._penalize(optimizer)
            return loss

        return penalizing_closure

    @torch.no_grad()
    def _penalize(self, optimizer: Optimizer) -> None:
        gammas = [gamma for gamma, _ in self._trained(optimizer)]
        if not gammas or (isinstance(self._lam, float) and self._lam == 0):
            return
        additions = torch._foreach_sign(gammas)
        torch._foreach_mul_(additions, self._strength(optimizer))
        torch._foreach_add_([_gradient(gamma) for gamma in gammas], additions)

    def _strength(self, optimizer: Optimizer) -> float | Tensor:
        # Fused optimizers divide by the GradScaler's scale inside the step; until then the gradients carry it.
        scale: Tensor | None = getattr(optimizer, "grad_scale", None)
        return self._lam if scale is None else self._lam * scale


class ProximalL1(_Penalty):
    """Soft-thresholds every γ right after each optimizer step, which leaves exact zeros (ISTA).

    γ ← sign(γ)·max(|γ| − η, 0) with η = lr·λ·λ_l, where lr is that of the parameter group of γ at that step and λ_l
    is the layer's share in `layer_weights`, 1 where it has none. Frozen γ are left alone, and a step that a GradScaler
    skips shrinks nothing.

    `layers` chooses batch norms by name; without it, all of them are penalized.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> penalty = ProximalL1(model, lam=4, layer_weights={"1": 2}).attach(optimizer)
    >>> for _ in range(2):
    ...     optimizer.step()
    >>> model[1].weight.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        model: nn.Module,
        lam: float | Tensor,
        layers: Iterable[str] | None = None,
        layer_weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(model, lam, layers)
        self._layer_weights: dict[int, float] = {}
        found = _scaling_factors(model)
        for name, weight in (layer_weights or {}).items():
            _require_strength(f"layer '{name}': λ_l", weight)
            self._layer_weights[id(_named(found, name))] = float(weight)

    def _register(self, optimizer: Optimizer) -> RemovableHandle:
        return optimizer.register_step_post_hook(self._after_step)

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        trained = self._trained(optimizer)
        if not trained:
            return
        strength = self._strength(optimizer)
        limits = [strength * group["lr"] * self._layer_weights.get(id(gamma), 1.0) for gamma, group in trained]
        _soft_threshold([gamma for gamma, _ in trained], limits)

    def _strength(self, optimizer: Optimizer) -> float | Tensor:
        # Fused optimizers skip a step with infinite gradients inside the step, so the hook runs all the same.
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        return self._lam if found_inf is None else self._lam * (found_inf == 0)


def _soft_threshold(gammas: list[Tensor], limits: list[Any]) -> None:
    """γ − clamp(γ, −η, η), which is sign(γ)·max(|γ| − η, 0) with exact zeros."""
    if any(isinstance(limit, Tensor) for limit in limits):
        # Numbers and tensors do not mix in one fused call.
        limits = [
            torch.as_tensor(limit, dtype=g.dtype, device=g.device) for limit, g in zip(limits, gammas, strict=True)
        ]
    clamped = torch._foreach_clamp_max(gammas, limits)
    torch._foreach_clamp_min_(clamped, [-limit for limit in limits])
    torch._foreach_sub_(gammas, list(clamped))


def _gradient(gamma: Tensor) -> Tensor:
    if gamma.grad is None:
        gamma.grad = torch.zeros_like(gamma)
    return gamma.grad


def _owners(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    return {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}


def _scaling_factors(model: nn.Module) -> dict[str, nn.Parameter]:
    named = model.named_modules(remove_duplicate=False)
    found = {name: m.weight for name, m in named if isinstance(m, _BatchNorm) and m.weight is not None}
    if not found:
        raise PenaltyError(
            "the model has no batch norm with scaling factors, so there is nothing to penalize; "
            "use nn.BatchNorm1d, 2d or 3d with affine=True"
        )
    return found


def _chosen(found: Mapping[str, nn.Parameter], layers: Iterable[str] | None) -> Mapping[str, nn.Parameter]:
    chosen = found if layers is None else {name: _named(found, name) for name in layers}
    if not chosen:
        raise PenaltyError(
            "no layer was chosen; name some in layers=[...], or leave it out to penalize all batch norms"
        )
    return chosen


def _named(found: Mapping[str, nn.Parameter], name: str) -> nn.Parameter:
    if name not in found:
        nearest = get_close_matches(name, found, cutoff=0.0)
        raise PenaltyError(f"'{name}' is no batch norm with scaling factors in this model; it has {', '.join(nearest)}")
    return found[name]


def _without_repetition(gammas: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """One name for each γ: a batch norm used in two places is penalized once."""
    first_names: dict[int, str] = {}
    for name, gamma in gammas.items():
        first_names.setdefault(id(gamma), name)
    return {name: gammas[name] for name in first_names.values()}


def _require_strength(what: str, value: float | Tensor) -> None:
    if isinstance(value, Tensor) and (value.dim() or not value.is_floating_point()):
        raise PenaltyError(f"{what} must be a number or a floating-point tensor without dimensions, not {value!r}")
    number = float(value.detach() if isinstance(value, Tensor) else value)
    if not (math.isfinite(number) and number >= 0):
        raise PenaltyError(f"{what} must be finite and not negative, but it is {number!r}; 1e-4 is a usual λ")
