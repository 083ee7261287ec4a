"""Whole residual branches: which can go, and what goes with them.

A branch ends in a batch norm whose output is nothing but an operand of a sum, at once or behind convolutions that make
nothing of nothing. When it goes, the sum is its other operand, and everything that only fed the batch norm, or only
read it, goes too.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.channels.graph import (
    Affine,
    Attached,
    Carry,
    ChannelGraph,
    Flags,
    Frozen,
    Hole,
    Mix,
    Node,
    Overwriting,
    Pointwise,
    Sum,
    reads_of,
)
from otprune.planning.absence import Absence

aten = torch.ops.aten

# What speaks against taking out these layers, or None.
Objection = Callable[[list[str]], str | None]

SUMS = frozenset({aten.add.Tensor, aten.add_.Tensor})
# Zero in a labelled operand makes the result zero, whatever the other operands are.
PRODUCTS = frozenset({aten.mul.Tensor, aten.mul_.Tensor, aten._prelu_kernel.default})


@dataclass(frozen=True)
class Branches:
    """What goes: nodes of the graph by index, and for each sum that loses an operand the number of the other one.

    `staying` has the branches that could not go, by the layer at their end, and why; `idle` the modules that are left
    with nothing to do.
    """

    ends: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()
    survivors: dict[int, int] = field(default_factory=dict)
    in_place: frozenset[nn.Module] = frozenset()
    staying: dict[str, str] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)

    def layers(self, graph: ChannelGraph) -> set[str]:
        """The batch norms that go."""
        return {node.layer for index in self.nodes if isinstance(node := graph.nodes[index], Affine)}


def removable_branches(
    graph: ChannelGraph,
    layers: Iterable[str],
    model: nn.Module,
    protected: Collection[str],
    absence: Absence,
) -> Branches:
    """As many as possible of the branches that end in the given batch norms, earlier ones first.

    A branch that holds one of the `protected` tensors stays, and so does one to whose absence the model's code has an
    objection.
    """
    wanted = set(layers)
    ends = [index for index, node in enumerate(graph.nodes) if isinstance(node, Affine) and node.layer in wanted]
    gather = partial(_gathered, graph, ends, model, protected)
    found = gather(lambda layers: None)
    if found.ends and absence.objection(removed_layers(graph, found)) is not None:
        found = gather(absence.objection)
    return replace(found, idle=absence.idle(removed_layers(graph, found))) if found.ends else found


def branches_together(graph: ChannelGraph, ends: Collection[int], model: nn.Module) -> Branches:
    """As many of the branches with these ends as the graph lets go together, whatever the model's code says."""
    return _gathered(graph, sorted(ends), model, (), lambda layers: None)


def branch_ending_at(graph: ChannelGraph, end: int, model: nn.Module) -> tuple[Branches, str | None]:
    """The branch whose last batch norm is the node of index `end`, and what in the graph stands against it.

    It has no survivors where the batch norm is added to nothing, and so is the end of no branch.
    """
    branch, obstacle = _with_branch(graph, Branches(), end)
    if obstacle is None and branch.survivors:
        obstacle = _obstacle_inside(graph, end, branch, model, ())
    return branch, obstacle


def removed_layers(graph: ChannelGraph, branches: Branches) -> list[str]:
    """The modules that go with whole branches, in the order they ran."""
    names = [name for index in sorted(branches.nodes) for name in tensors_of(graph.nodes[index])]
    return list(dict.fromkeys([*(name.rpartition(".")[0] for name in names), *branches.idle]))


def _gathered(
    graph: ChannelGraph, ends: list[int], model: nn.Module, protected: Collection[str], objection: Objection
) -> Branches:
    found = Branches()
    for end in ends:
        more, obstacle = _with_branch(graph, found, end)
        if more.survivors.keys() == found.survivors.keys():
            continue  # added to nothing, so no branch
        obstacle = obstacle or _obstacle_inside(graph, end, more, model, protected)
        obstacle = obstacle or objection(removed_layers(graph, more))
        layer: str = graph.nodes[end].layer  # type: ignore[union-attr]
        found = more if obstacle is None else replace(found, staying={**found.staying, layer: obstacle})
    return found


def _with_branch(graph: ChannelGraph, branches: Branches, end: int) -> tuple[Branches, str | None]:
    """The branches with one more, and what stands against it."""
    survivors, in_place, obstacle = _follow(graph, branches, end)
    ends = branches.ends | {end}
    nodes = upstream(graph, ends, survivors)
    return Branches(ends, nodes, survivors, branches.in_place | in_place, branches.staying), obstacle


def _follow(
    graph: ChannelGraph, branches: Branches, end: int
) -> tuple[dict[int, int], frozenset[nn.Module], str | None]:
    """Follow the zeros from the branch's end to the sums that absorb them, and say if anything else reads them."""
    obstacle: str | None = None
    absent = np.zeros(graph.count, bool)
    absent[graph.nodes[end].writes] = True  # type: ignore[union-attr]
    shared = np.zeros(graph.count, bool)  # a sum and the operand that is left are then the same memory
    survivors, in_place = dict(branches.survivors), set[nn.Module]()
    for index in range(end + 1, len(graph.nodes)):
        node = graph.nodes[index]
        if isinstance(node, Overwriting) and shared[node.labels].any():
            if node.writer is None or not hasattr(node.writer, "inplace"):
                obstacle = obstacle or "its sum is changed in place, and so would be the operand that is left of it"
            else:
                in_place.add(node.writer)
        if not any(absent[labels].any() for labels in reads_of(node)):
            continue
        survivor = _survivor(node, absent) if index not in survivors else None
        if survivor is not None and isinstance(node, Pointwise):
            survivors[index] = survivor
            if survivor != 0 or not node.func._schema.is_mutable:
                shared[node.writes] = shared[node.labels_of(survivor)] = True
        elif _stays_zero(node, absent) or _loses_the_rest(node, survivors.get(index), absent):
            absent[node.writes] = True  # type: ignore[union-attr]
        else:
            obstacle = obstacle or _obstacle_behind(node)
    return survivors, frozenset(in_place), obstacle


def _survivor(node: Node, absent: Flags) -> int | None:
    """The operand of a plain sum that is left when the other one is absent."""
    if not isinstance(node, Pointwise) or node.func not in SUMS or node.keywords.get("alpha", 1) != 1:
        return None
    if len(node.operands) != 2 or not all(node.whole) or any(labels is None for labels in node.operands):
        return None
    gone = [absent[labels] for labels in node.labelled]
    if gone[0].all() and not gone[1].any():
        return 1
    return 0 if gone[1].all() and not gone[0].any() else None


def _stays_zero(node: Node, absent: Flags) -> bool:
    if isinstance(node, Carry):
        return node.keeps != "nothing" and bool(absent[node.reads].all())
    if isinstance(node, Mix):
        return node.bias is None and bool(absent[node.reads].all())
    if not isinstance(node, Pointwise):
        return False
    if node.func in PRODUCTS and any(absent[labels].all() for labels in node.labelled):
        return True
    if len(node.operands) != 1 or not absent[node.labelled[0]].all():
        return False
    zero = torch.zeros(1, dtype=torch.float64)
    arguments = [zero if isinstance(argument, Hole) else argument for argument in node.arguments]
    return bool((node.func(*arguments, **node.keywords) == 0).all())


def _loses_the_rest(node: Node, survivor: int | None, absent: Flags) -> bool:
    """Whether a sum that has lost one operand to an earlier branch now loses the other."""
    return isinstance(node, Pointwise) and survivor is not None and bool(absent[node.labels_of(survivor)].all())


def upstream(graph: ChannelGraph, ends: frozenset[int], survivors: dict[int, int]) -> frozenset[int]:
    """The nodes that only fed what goes."""
    needed, fed = np.zeros(graph.count, bool), np.zeros(graph.count, bool)
    gone = set(ends)
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        writes = getattr(node, "writes", None)
        if writes is not None and index not in gone and fed[writes].any() and not needed[writes].any():
            gone.add(index)
        reads = reads_of(node)
        if index in survivors and isinstance(node, Pointwise) and index not in gone:
            left = node.labels_of(survivors[index])
            needed[left] = True
            reads = [labels for labels in reads if labels is not left]
        for labels in reads:
            (fed if index in gone or index in survivors else needed)[labels] = True
    return frozenset(gone)


def _obstacle_inside(
    graph: ChannelGraph, end: int, branches: Branches, model: nn.Module, protected: Collection[str]
) -> str | None:
    """Every layer that goes has to be a module on its own, all of whose parameters go; no shape may be read."""
    if not graph.nodes[end].selectable:  # type: ignore[union-attr]
        return "its last batch norm runs several times, or is no module of its own"
    inside = [graph.nodes[index] for index in branches.nodes]
    written = [node.writes for node in inside if not isinstance(node, Frozen | Sum | Attached)]  # type: ignore[union-attr]
    if np.intersect1d(np.concatenate([labels.reshape(-1) for labels in written]), graph.reshaped).size:
        return "a view, a concatenation or a split in it goes by its shape"
    names = [name for node in inside for name in tensors_of(node)]
    going: set[nn.Module | None] = {model.get_submodule(name.rpartition(".")[0]) for name in names}
    if any(graph.nodes[index].runner in going for index in branches.survivors):  # type: ignore[union-attr]
        return "one of its own layers adds it to something that must stay"
    outside = {name for i, node in enumerate(graph.nodes) if i not in branches.nodes for name in tensors_of(node)}
    for name in names:
        if name in outside:
            return f"{name} is used outside of it too"
        if name in protected:
            return f"{name} is to be left alone"
        if not _is_leaf(model, name, set(names)):
            return f"the module that has {name} holds more than what goes"
    return None


def _obstacle_behind(node: Node) -> str:
    """What is against a branch whose result is read by a node that is no sum."""
    if isinstance(node, Frozen):
        return f"its result must stay: {node}"
    names = tensors_of(node)
    reader = f"layer {names[0].rpartition('.')[0]}" if names else str(getattr(node, "func", "an operator"))
    return f"{reader} reads it too"


def _is_leaf(model: nn.Module, name: str, gone: set[str]) -> bool:
    path = name.rpartition(".")[0]
    module = model.get_submodule(path)
    own = {f"{path}.{key}" if path else key for key, _ in module.named_parameters()}
    # A batch norm may have its activation inside.
    alone = isinstance(module, _BatchNorm) or not list(module.children())
    return path != "" and alone and own <= gone


def tensors_of(node: Node) -> list[str]:
    """The parameters and buffers that a layer's node owns."""
    if isinstance(node, Mix):
        return [node.weight] if node.bias is None else [node.weight, node.bias]
    return node.tensors if isinstance(node, Affine) else []
