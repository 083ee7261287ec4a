"""What can be pruned of a model before anything is trained: layer by layer, and why the rest must stay."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from otprune.channels.graph import ChannelGraph, Frozen
from otprune.channels.trace import trace
from otprune.cost import cost
from otprune.inputs import describe
from otprune.plan import plan, require_batch_norms
from otprune.planning.absence import Absence
from otprune.planning.reasons import reasons_to_stay
from otprune.planning.removable import removable_channels
from otprune.planning.residual import Branch, residual_branches
from otprune.planning.ties import tied_batch_norms
from otprune.tables import table
from otprune.thresholds import Rule


@dataclass(frozen=True)
class InspectedLayer:
    """One batch norm: how many of its channels can go, what it is bound to, and what a rule would do to it."""

    name: str
    channels: int
    can_go: int
    """How many can go at all, if what they are tied to goes too.

    One stays in any case. Whole branches that go are left out of account: they take all of theirs, and free others.
    """
    tied: list[str]
    """The other batch norms whose channels a sum ties to its own: they go together."""
    branch: str | None
    """The innermost residual branch that it lies in, by the batch norm at its end."""
    reasons: list[str]
    """Why the channels that cannot go must stay."""
    threshold: float | None = None
    dropped: int | None = None


@dataclass(frozen=True)
class Inspection:
    """What can go of a model; print it for tables."""

    model: str
    inputs: Any
    parameters: int
    flops: int
    layers: list[InspectedLayer]
    branches: list[Branch]
    ties: list[list[str]]
    frozen: list[str]
    notes: list[str]

    @property
    def channels(self) -> int:
        """All channels of batch norms."""
        return sum(layer.channels for layer in self.layers)

    @property
    def can_go(self) -> int:
        """Those of them that can go."""
        return sum(layer.can_go for layer in self.layers)

    def to_json(self) -> str:
        """Everything as JSON, with the totals."""
        totals = {"channels": self.channels, "can_go": self.can_go}
        return json.dumps(dataclasses.asdict(self) | totals, indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return "\n".join([_layers(self), "", *_totals(self), *_stays(self), *_ties(self)])


def inspect(model: nn.Module, example: Any, rule: Rule | None = None) -> Inspection:
    """Find out which batch-norm channels of `model` can go, and with a `rule` also which it would drop.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4))
    >>> print(inspect(net, torch.zeros(1, 3, 8, 8)))
    batch norm  channels  can go  tie  branch  stays for
    ----------  --------  ------  ---  ------  ---------
    1                  8       8
    4                  4       0               a
    <BLANKLINE>
    Sequential: 284 parameters, 11,088 FLOPs
    8 of 12 batch-norm channels (66.7%) can go, in 2 batch norms
    a: is an output of the model (model's end)
    """
    graph = trace(model, example)
    require_batch_norms(graph, model)
    branches = residual_branches(graph, model, Absence(model, example, graph.operators))
    ties, total = tied_batch_norms(graph), cost(model, example)
    return Inspection(
        model=type(model).__name__,
        inputs=describe(example),
        parameters=total.parameters,
        flops=total.flops,
        layers=_inspected(graph, model, _Bonds(ties, branches), _planned(model, example, rule)),
        branches=branches,
        ties=ties,
        frozen=list(dict.fromkeys(str(node) for node in graph.of(Frozen) if not node.expected)),
        notes=list(graph.notes),
    )


class _Bonds(NamedTuple):
    """What batch norms are bound to."""

    ties: list[list[str]]
    branches: list[Branch]

    def tied(self, name: str) -> list[str]:
        return [other for names in self.ties if name in names for other in names if other != name]

    def innermost_branch(self, name: str) -> str | None:
        around = [branch for branch in self.branches if name in branch.layers]
        return min(around, key=lambda branch: len(branch.layers)).end if around else None


def _inspected(
    graph: ChannelGraph, model: nn.Module, bonds: _Bonds, planned: dict[str, dict[str, Any]]
) -> list[InspectedLayer]:
    can_go = removable_channels(graph, model)
    reasons = reasons_to_stay(graph, model, can_go)
    return [
        InspectedLayer(
            name=name,
            channels=len(flags),
            can_go=int(flags.sum()),
            tied=bonds.tied(name),
            branch=bonds.innermost_branch(name),
            reasons=reasons[name],
            **planned.get(name, {}),
        )
        for name, flags in can_go.items()
    ]


def _planned(model: nn.Module, example: Any, rule: Rule | None) -> dict[str, dict[str, Any]]:
    if rule is None:
        return {}
    layers = plan(model, example, rule).layers
    return {layer.name: {"threshold": layer.threshold, "dropped": layer.channels - len(layer.kept)} for layer in layers}


def _layers(inspection: Inspection) -> str:
    ties = {name: str(number) for number, names in enumerate(inspection.ties, 1) for name in names}
    staying = {branch.end for branch in inspection.branches if branch.obstacle is not None}
    letters = _letters(inspection)
    ruled = any(layer.threshold is not None for layer in inspection.layers)
    rows = [
        (
            layer.name,
            layer.channels,
            layer.can_go,
            *((f"{layer.threshold:.3g}", layer.dropped) if ruled else ()),
            ties.get(layer.name, ""),
            f"{layer.branch or ''}{' (stays)' if layer.branch in staying else ''}",
            ", ".join(letters[reason] for reason in layer.reasons),
        )
        for layer in inspection.layers
    ]
    more = ("threshold", "OT drops") if ruled else ()
    return table(("batch norm", "channels", "can go", *more, "tie", "branch", "stays for"), rows)


def _letters(inspection: Inspection) -> dict[str, str]:
    """A letter for every reason, in the order they come up: a to z, then aa and on."""
    reasons = dict.fromkeys(reason for layer in inspection.layers for reason in layer.reasons)
    return {reason: _letter(number) for number, reason in enumerate(reasons)}


def _letter(number: int) -> str:
    rest, last = divmod(number, 26)
    return ("" if rest == 0 else _letter(rest - 1)) + chr(ord("a") + last)


def _totals(inspection: Inspection) -> Iterator[str]:
    channels, can_go, dropped = inspection.channels, inspection.can_go, [x.dropped for x in inspection.layers]
    yield f"{inspection.model}: {inspection.parameters:,} parameters, {inspection.flops:,} FLOPs"
    share = f"{can_go:,} of {channels:,} batch-norm channels ({can_go / channels:.1%}) can go"
    yield f"{share}, in {len(inspection.layers)} batch norms"
    if None not in dropped:
        gone = sum(number or 0 for number in dropped)
        yield f"OT would drop {gone:,} of them ({gone / channels:.1%} of all)"
    if inspection.branches:
        free = sum(branch.obstacle is None for branch in inspection.branches)
        yield f"{free} of {len(inspection.branches)} residual branches can go as a whole"


def _stays(inspection: Inspection) -> Iterator[str]:
    letters = _letters(inspection)
    yield from (f"{letter}: {reason}" for reason, letter in letters.items())
    yield from (f"frozen: {reason}" for reason in inspection.frozen if reason not in letters)
    yield from (f"the branch {b.end} stays: {b.obstacle}" for b in inspection.branches if b.obstacle is not None)
    yield from (f"note: {note}" for note in inspection.notes)


def _ties(inspection: Inspection) -> Iterator[str]:
    for number, names in enumerate(inspection.ties, 1):
        yield f"tie {number}: {', '.join(names)}"
