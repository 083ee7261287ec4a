"""Scaling factors, a rule and the channel graph make a plan: what stays, layer by layer, as pure data."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from otprune.channels.graph import ChannelGraph, Flags, Frozen
from otprune.channels.rules.shaping import SELECTION
from otprune.channels.trace import trace
from otprune.errors import ModelError, PlanError, ThresholdError
from otprune.files import write_atomically
from otprune.inputs import describe
from otprune.jsons import parsed, read_object
from otprune.kinds import require_kind
from otprune.planning.absence import Absence
from otprune.planning.branches import Branches, removable_branches, removed_layers
from otprune.planning.cuts import (
    Cut,
    Fold,
    Memorized,
    Piece,
    cuts,
    folds,
    memories,
    not_in_place,
    pieces,
    selections,
    still_read,
)
from otprune.planning.passage import is_passable
from otprune.planning.silence import silent_layers
from otprune.planning.solve import Limits, Solution, is_ignored, solve
from otprune.planning.weights import Weights
from otprune.tables import table
from otprune.thresholds import OptimalThreshold, Rule, Thresholds

FORMAT = 1
LEFT_ALONE = "left alone"


@dataclass(frozen=True)
class LayerPlan:
    """What becomes of one batch norm: which channels stay, at which threshold, and why others could not go."""

    name: str
    channels: int
    kept: list[int]
    threshold: float
    negligible: int
    note: str = ""

    @property
    def left_alone(self) -> bool:
        """Whether the layer was to be ignored."""
        return self.note == LEFT_ALONE


@dataclass(frozen=True)
class PruningPlan:
    """What `prune` would do to a model. Print it, save it, load it, hand it to `prune`.

    `sources` has digests of the tensors that its constants come from: it fits as long as those do not change. Without
    `training`, the model ran on the example in evaluation mode alone. `functions` counts what the pruned model has to
    run where `memories` changes sizes that modules remember.
    """

    model: str
    fingerprint: str
    rule: dict[str, Any]
    layers: list[LayerPlan]
    masked: dict[str, list[int]]
    cuts: list[Cut]
    selections: dict[str, list[int]]
    removed: list[str]
    not_in_place: list[str]
    still_read: list[str]
    folds: list[Fold]
    frozen: list[str]
    inputs: Any
    outputs: list[list[int]]
    numbers: dict[str, list[str]]
    pieces: list[Piece]
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    training: bool = True
    memories: list[Memorized] = field(default_factory=list)
    functions: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [(p.name, p.channels, len(p.kept), f"{p.threshold:.3g}", p.note) for p in self.layers]
        total = ("total", sum(p.channels for p in self.layers), sum(len(p.kept) for p in self.layers), "", "")
        text = table(("batch norm", "channels", "kept", "threshold", "note"), [*rows, total])
        lines = [*(f"frozen: {reason}" for reason in self.frozen), *(f"note: {note}" for note in self.notes)]
        return "\n".join([text, *lines])

    def to_json(self) -> str:
        """The plan as JSON, the way checkpoints carry it.

        >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
        >>> p = plan(net, torch.zeros(1, 3, 8, 8), OptimalThreshold())
        >>> PruningPlan.from_json(p.to_json()) == p
        True
        """
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, ensure_ascii=False, allow_nan=False)

    @property
    def misused(self) -> str:
        """What may be the matter where the pruned model turns out to be another one, and what to do about it."""
        sizes = ", ".join(map(str, self.memories))
        return (
            f"its code does more with a size than cut channels into pieces: one of {sizes}. "
            f"Leave the layers near it alone with ignore=[...]."
        )

    @classmethod
    def from_json(cls, text: str) -> "PruningPlan":
        """Read what `to_json` wrote; raise `PlanError` on anything else."""
        try:
            return cls.from_fields(parsed(text))
        except ValueError as error:
            raise _not_a_plan(str(error)) from error

    @classmethod
    def from_fields(cls, fields: Any) -> "PruningPlan":
        """The same of what JSON says."""
        try:
            require_kind(fields, dict[str, Any], "it")
            if fields.get("format") != FORMAT:
                raise PlanError(f"the plan was written in another format than {FORMAT}: plan again with this version")
            own = {name: value for name, value in fields.items() if name != "format"}
            require_kind(own, cls, "it")
        except ValueError as error:
            raise _not_a_plan(str(error)) from error
        read = {name: [_READ[name](item) for item in own.get(name, [])] for name in _READ}
        return cls(**own | read)

    def save(self, path: str | Path) -> None:
        """Write the plan to a JSON file, whole or not at all."""
        write_atomically(Path(path), self.to_json().encode())

    @classmethod
    def load(cls, path: str | Path) -> "PruningPlan":
        """Read a plan that `save` wrote."""
        try:
            return cls.from_fields(read_object(Path(path), _not_a_plan))
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from error


def plan(
    model: nn.Module,
    example: Any,
    rule: Rule | None = None,
    *,
    ignore: Collection[str] = (),
    round_to: int = 1,
    max_ratio: float = 1.0,
) -> PruningPlan:
    """Decide which channels of `model` can go; nothing is changed yet.

    Args:
        model: any module with batch norms. Planned as it is; not changed.
        example: an input of the model: a tensor, a tuple of arguments, or a dict of keyword arguments.
        rule: which scaling factors are negligible; `OptimalThreshold()` unless given.
        ignore: layers to leave alone: names, parents' names, or patterns such as `"layer4.*"`.
        round_to: keep channel counts at multiples of this, where a layer has that many.
        max_ratio: at most this share of a layer's channels goes.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> _ = nn.init.constant_(net[1].weight, 0.5)
    >>> net[1].weight.data[1] = 1e-6
    >>> plan(net, torch.zeros(1, 3, 8, 8)).layers[0].kept
    [0, 2, 3]
    """
    limits = _limits(ignore, round_to, max_ratio)
    inputs = describe(example)
    rule = OptimalThreshold() if rule is None else rule
    graph = trace(model, example)
    weights = Weights(model)
    gammas = _gammas(graph, model, weights.tensors, ignore)
    thresholds = rule.thresholds(gammas)
    small = {name: np.abs(weights[_weight(graph, name)]) for name in gammas}
    negligible = {name: gamma < thresholds.layers[name] for name, gamma in small.items()}
    protected = {tensor for tensor in graph.shapes if is_ignored(tensor, ignore)}
    ends = _branch_ends(small, thresholds.branch, max_ratio)
    absence = Absence(model, example, graph.operators)
    branches = removable_branches(graph, ends, model, protected, absence)
    dead = [name for name, gamma in small.items() if not gamma.any() and name not in branches.layers(graph)]
    _refuse_dead_layers(graph, dead, branches, weights)
    for index in branches.ends:
        negligible[graph.nodes[index].layer][:] = True  # type: ignore[union-attr]
    faint = {name: gamma < (thresholds.branch or 0.0) for name, gamma in small.items()}
    silent = silent_layers(graph, faint, ends, dead, branches, weights)
    for name in silent:
        negligible[name][:] = True
    solution = solve(graph, negligible, branches, weights, limits)
    decision = _Decision(graph, thresholds, negligible, ends, silent, solution, limits)
    return _described(model, rule, inputs, decision, absence)


def fingerprint(model: nn.Module) -> str:
    """A digest of tensors' names and shapes and of channel selections: the same for models that a plan fits equally."""
    shapes = sorted((name, tuple(tensor.shape)) for name, tensor in model.state_dict().items())
    selections = [(name, buffer.tolist()) for name, buffer in model.named_buffers() if name.endswith(SELECTION)]
    return hashlib.sha256(repr(shapes + selections).encode()).hexdigest()


def require_batch_norms(graph: ChannelGraph, model: nn.Module) -> None:
    """Refuse a model without scaling factors."""
    if not graph.batch_norms:
        raise ModelError(
            f"{type(model).__name__} has no batch norm with scaling factors on the way from the example to its "
            f"output: there is nothing to prune by. Put BatchNorm layers after its convolutions and train again."
        )


def _limits(ignore: Collection[str], round_to: int, max_ratio: float) -> Limits:
    if isinstance(ignore, str):
        raise PlanError(f'ignore is a list of layer names: write ignore=["{ignore}"]')
    if round_to < 1:
        raise PlanError(f"round_to is {round_to}: give a multiple to keep channel counts at, 1 or more")
    if not 0 <= max_ratio <= 1:
        raise PlanError(f"max_ratio is {max_ratio}: give the largest share of a layer that may go, from 0 to 1")
    return Limits(ignore, round_to, max_ratio)


def _gammas(
    graph: ChannelGraph, model: nn.Module, tensors: Mapping[str, Tensor], ignore: Collection[str]
) -> dict[str, Tensor]:
    require_batch_norms(graph, model)
    unknown = [name for name in ignore if not any(is_ignored(tensor, [name]) for tensor in graph.shapes)]
    if unknown:
        raise PlanError(f"ignore names {unknown[0]!r}, which is no layer of the model: use a name of named_modules()")
    weights = {name: _weight(graph, name) for name in graph.batch_norms}
    used = {name: tensors[w].detach() for name, w in weights.items() if not is_ignored(w, ignore)}
    for name, gamma in used.items():
        if not bool(torch.isfinite(gamma).all()):
            raise ThresholdError(
                f"layer {name}: scaling factors are NaN or infinite. Load weights from before the training diverged, "
                f"or train with a lower learning rate."
            )
    return used


def _weight(graph: ChannelGraph, layer: str) -> str:
    weight = graph.batch_norms[layer].weight
    assert weight is not None
    return weight


def _branch_ends(gammas: Mapping[str, NDArray[np.float64]], threshold: float | None, max_ratio: float) -> list[str]:
    """Batch norms that let nothing through, or too little to matter where whole layers may go."""
    limit = 0.0 if threshold is None or max_ratio < 1 else threshold
    return [name for name, gamma in gammas.items() if not gamma.any() or (gamma < limit).all()]


def _refuse_dead_layers(graph: ChannelGraph, dead: list[str], branches: Branches, weights: Weights) -> None:
    """A layer may let nothing through as long as something gets past it."""
    if dead and not is_passable(graph, dead, branches, weights):
        alone = (name for name in dead if not is_passable(graph, [name], branches, weights))
        blamed = next(([name] for name in alone), dead)
        raise ThresholdError(
            f"layer {', '.join(blamed)}: all scaling factors are zero, and nothing of the input gets past to the "
            f"output. Train with a smaller λ, or leave it alone with ignore={json.dumps(blamed)}."
        )


@dataclass(frozen=True, eq=False)
class _Decision:
    """What a rule says of a model's batch norms, and what comes of it."""

    graph: ChannelGraph
    thresholds: Thresholds
    negligible: Mapping[str, Flags]
    quiet: Collection[str]
    silent: Collection[str]
    solution: Solution
    limits: Limits

    @cached_property
    def gone(self) -> set[str]:
        return self.solution.branches.layers(self.graph)


def _described(model: nn.Module, rule: Rule, inputs: Any, decision: _Decision, absence: Absence) -> PruningPlan:
    graph, solution = decision.graph, decision.solution
    folded = folds(graph, solution)  # before the tensors used are looked at
    removed, remembered = removed_layers(graph, solution.branches), memories(graph, solution)
    training = graph.operators[True] is not None
    return PruningPlan(
        model=type(model).__name__,
        fingerprint=fingerprint(model),
        rule=rule.describe(),
        layers=[_layer(name, decision) for name in graph.batch_norms],
        masked={name: np.flatnonzero(flags).tolist() for name, flags in solution.masked.items() if flags.any()},
        cuts=cuts(graph, solution),
        selections=selections(graph, solution),
        removed=removed,
        not_in_place=not_in_place(model, solution),
        still_read=still_read(graph, model, solution),
        folds=folded,
        frozen=list(dict.fromkeys(str(node) for node in graph.of(Frozen) if not node.expected)),
        inputs=inputs,
        outputs=graph.outputs,
        numbers=dict(graph.numbers),
        pieces=pieces(graph, solution),
        sources=solution.weights.digests(),
        notes=list(graph.notes),
        training=training,
        memories=remembered,
        functions=absence.functions(removed, training) if remembered else {},
    )


def _layer(name: str, decision: _Decision) -> LayerPlan:
    writes = decision.graph.batch_norms[name].writes
    stays = np.zeros(len(writes), bool) if name in decision.gone else decision.solution.live[writes]
    below = decision.negligible.get(name, np.zeros(len(writes), bool))
    threshold = decision.thresholds.layers.get(name, 0.0)
    return LayerPlan(
        name=name,
        channels=len(writes),
        kept=np.flatnonzero(stays).tolist(),
        threshold=0.0 if np.isinf(threshold) else threshold,
        negligible=int(below.sum()),
        note=_note(name, int((below & stays).sum()), decision),
    )


def _note(name: str, stuck: int, decision: _Decision) -> str:
    """What the user may not expect of a layer, `stuck` of whose negligible channels stay."""
    if name in decision.gone:
        return "the whole branch goes"
    if name not in decision.thresholds.layers:
        return LEFT_ALONE
    obstacle = decision.solution.branches.staying.get(name)
    needed = [f"{stuck} negligible, needed {' or for '.join(['elsewhere', *decision.limits.keeping])}"] if stuck else []
    heard = [_heard(name, stuck, decision)] if name in decision.quiet else []
    stays = [] if obstacle is None else [f"the branch stays: {obstacle}"]
    return "; ".join(filter(None, [*heard, *needed, *stays]))


def _heard(name: str, stuck: int, decision: _Decision) -> str:
    """What becomes of a layer all of whose scaling factors are small in the network as a whole."""
    if name not in decision.silent:
        return "quiet in the network as a whole, but what reads it may make it loud"
    return "not heard in the network as a whole" if stuck < len(decision.negligible[name]) else ""


def _cut_from(fields: dict[str, Any]) -> Cut:
    keep = {int(axis): indices for axis, indices in fields["keep"].items()}
    return Cut(fields["tensor"], tuple(fields["shape"]), keep, fields.get("groups"))


# How the parts of a plan are made of what JSON says.
_READ: dict[str, Callable[[dict[str, Any]], Any]] = {
    "layers": lambda fields: LayerPlan(**fields),
    "cuts": _cut_from,
    "folds": lambda fields: Fold(**fields),
    "pieces": lambda fields: Piece(**fields),
    "memories": lambda fields: Memorized(**fields),
}


def _not_a_plan(why: str) -> PlanError:
    return PlanError(f"this is not a pruning plan: {why}. Write one with `plan.save(path)`.")
