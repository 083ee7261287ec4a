"""How the page finds costs at a δ: by its own sums where these are right, else from a table of plans.

The sums (see `otprune.report.html.widths`) take any δ. Whether they are right for a network is not a matter of belief:
they are held against the real planner at several δ, run by run. Where they fail, δ is moved along `STOPS`, at each of
which the network is planned here, pruned and counted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

import otprune as ot
from otprune.channels.graph import ChannelGraph, Flags
from otprune.channels.trace import trace
from otprune.experiments.experiment import UNBOUNDED, Bounds
from otprune.report.html.widths import Widths, costs_of, widths
from otprune.thresholds import Thresholds

TRIED = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.5)
STOPS = tuple(float(f"{10**exponent:.3g}") for exponent in np.linspace(-8, np.log10(0.5), 60))


@dataclass(frozen=True)
class Stop:
    """What the planner makes of a network at a δ."""

    delta: float
    flops: int
    parameters: int
    kept: list[int]


@dataclass(frozen=True)
class Network:
    """A network that δ can be moved for: its γ by layer, what it costs unpruned, and either `widths` or `stops`."""

    gammas: dict[str, list[float]]
    flops: int
    parameters: int
    widths: Widths | None
    stops: list[Stop]


def with_costs(model: nn.Module, example: Tensor, delta: float, bounds: Bounds = UNBOUNDED) -> Network:
    """A network and how the page can tell what it costs; `delta` and `bounds` are the run's own.

    >>> import torch
    >>> from otprune.models import digits_net
    >>> with_costs(digits_net(), torch.zeros(1, 1, 8, 8), 1e-3).flops
    4537590
    """
    graph, cost = trace(model, example), ot.cost(model, example)
    gammas = _gammas(model, graph)
    planner = _Planner(model, example, bounds)
    sums = widths(model, graph, cost)
    are_right = all(_agree(sums, gammas, planner.at(tried)) for tried in sorted({delta, *TRIED}))
    stops = [] if are_right else [planner.at(one) for one in sorted({delta, *STOPS})]
    written = {name: [_shortest(value) for value in gamma.flatten().tolist()] for name, gamma in gammas.items()}
    return Network(written, cost.flops, cost.parameters, sums if are_right else None, stops)


def described(network: Network) -> dict[str, Any]:
    """As JSON has it, without the γ.

    >>> import torch
    >>> from otprune.models import digits_net
    >>> list(described(with_costs(digits_net(), torch.zeros(1, 1, 8, 8), 1e-3)))
    ['flops', 'parameters', 'widths', 'stops']
    """
    fields = asdict(network)
    del fields["gammas"]
    return fields


@dataclass(frozen=True)
class _Planner:
    model: nn.Module
    example: Tensor
    bounds: Bounds

    def at(self, delta: float) -> Stop:
        plan = ot.plan(self.model, self.example, ot.OptimalThreshold(delta), **self.bounds)
        cost = ot.cost(ot.prune(self.model, plan), self.example)
        return Stop(delta, cost.flops, cost.parameters, [len(layer.kept) for layer in plan.layers])


def _agree(sums: Widths, gammas: Mapping[str, Tensor], planned: Stop) -> bool:
    thresholds = ot.OptimalThreshold(planned.delta).thresholds(gammas)
    found = costs_of(sums, _negligible(gammas, thresholds), _below(gammas, thresholds))
    return found == (planned.flops, planned.parameters, planned.kept)


def _negligible(gammas: Mapping[str, Tensor], thresholds: Thresholds) -> dict[str, Flags]:
    return {name: _magnitudes(gamma) < thresholds.layers[name] for name, gamma in gammas.items()}


def _below(gammas: Mapping[str, Tensor], thresholds: Thresholds) -> list[str]:
    assert thresholds.branch is not None
    return [name for name, gamma in gammas.items() if (_magnitudes(gamma) < thresholds.branch).all()]


def _magnitudes(gamma: Tensor) -> Any:
    return gamma.double().abs().numpy()


def _gammas(model: nn.Module, graph: ChannelGraph) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters())
    return {
        name: parameters[node.weight].detach().cpu()
        for name, node in graph.batch_norms.items()
        if node.weight is not None
    }


def _shortest(value: float) -> float:
    """The number with the fewest digits that is this one as a 32-bit float: half as long in a file."""
    return float(str(np.float32(value)))
