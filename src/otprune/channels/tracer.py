"""Labels for channels, and who follows them from operator to operator."""

import math
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.utils import _pytree as pytree

from otprune.abstract import refuse_branching
from otprune.channels.graph import (
    ANY_SIZE,
    Affine,
    Carry,
    Flags,
    Frozen,
    Labels,
    Meeting,
    Mix,
    Node,
    Overwriting,
    Pointwise,
    Shaped,
    Signature,
    reads_of,
)
from otprune.channels.labels import NO_CHANNEL, along, unlabelled
from otprune.channels.memory import Memory
from otprune.channels.operators import Operators
from otprune.channels.rules import rule_for
from otprune.channels.rules.shaping import SELECTION
from otprune.channels.rules.unknown import unknown
from otprune.channels.sizes import Listener, Place, sizes_told_apart
from otprune.inputs import tensors_in
from otprune.location import innermost_module, user_location

_RESIZABLE = (_ConvNd, _NormBase, nn.Linear, nn.PReLU)
_WITHOUT_SIZES = frozenset({nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict})


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer as an operator sees it: `axes` names the parameter's axis behind each dimension."""

    name: str
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class Call:
    """One operator with its arguments and result."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any


def sizes_of(tensor: Tensor, on_data: bool) -> list[int]:
    """The sizes of a tensor. Of what is made of data, how many boxes say, only the number of dimensions is sure.

    >>> sizes_of(torch.zeros(3, 4), on_data=False), sizes_of(torch.zeros(3, 4), on_data=True)
    ([3, 4], [-1, -1])
    """
    return [ANY_SIZE] * tensor.dim() if on_data else list(tensor.shape)


# Labels, and the dimension whose size was asked for.
Origin = tuple[Tensor, int]


class Tracer(Operators):
    """Gives labels to channels and follows them from operator to operator.

    What the `suspicious` operators read is noted in `suspects`.
    """

    def __init__(self, model: nn.Module, suspicious: Collection[Signature] = ()) -> None:
        super().__init__(model)
        self.suspicious = suspicious
        self.suspects: list[Frozen] = []
        self.nodes: list[Node] = []
        self.ties: list[tuple[Labels, Labels]] = []
        self.reshaped: list[Labels] = []
        self.count = NO_CHANNEL + 1
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self.uses: dict[tuple[str, int], Tensor] = {}
        self.notes: list[str] = []
        self.given: Any = None  # sizes that the model's own code gives to the view or split that runs
        self.memory = Memory()
        # Before the run, in which the model has tensors without data.
        self.selections = {name: t.cpu() for name, t in model.named_buffers() if name.endswith(SELECTION)}

    def refuse_harmful_branching(self, values: Any) -> None:
        """Raise where channels or parameters are used after the model has looked at its data.

        A condition does no harm if nothing after it has to do with channels, as in what sorts out boxes, and nothing is
        left that the other path could turn to.
        """
        if self.branching is not None:
            for tensor in pytree.tree_leaves(values):
                if isinstance(tensor, Tensor) and (self.is_labelled(tensor) or self.parameter(tensor) is not None):
                    refuse_branching(self.branching)

    def refuse_harmful_ending(self, out: Any) -> None:
        """As `refuse_harmful_branching` for what the model returns, and for whatever has not been read by then."""
        self.refuse_harmful_branching(out)
        if self.looking_at is not None and (self.unread_parameters() or self._has_unread_channels(out)):
            refuse_branching(self.looking_at)

    def unread_parameters(self) -> list[str]:
        """The parameters that no operator read."""
        norms = {name for node in self.nodes if isinstance(node, Affine) for name in (node.weight, node.bias)}
        keys = (key for signature in self.signatures for key in pytree.tree_leaves(signature))
        read = {key for key in keys if isinstance(key, str)}
        return [name for name, _ in self.model.named_parameters() if name not in read | norms]

    def read_labels(self) -> Flags:
        """Which labels some operator read."""
        read = np.zeros(self.count, bool)
        for labels in (labels for node in self.nodes for labels in reads_of(node)):
            read[labels] = True
        return read

    def _has_unread_channels(self, out: Any) -> bool:
        read = self.read_labels()
        for tensor in tensors_in(out):
            read[self.labels(tensor).reshape(-1).numpy()] = True
        return any(not read[node.writes].all() for node in self.nodes if _makes_channels(node))

    def looking(self) -> AbstractContextManager[None]:
        used = self.memory.used_elsewhere.update
        self._listener = Listener(self._note_given, self.freeze_counted, self._origin, used, lambda: self.busy)
        return sizes_told_apart(self._listener, self.model)

    def _note_given(self, sizes: Any) -> None:
        self.given = sizes
        self.memory.ask([p for size in pytree.tree_leaves(sizes) for p in getattr(size, "places", ())])

    def _origin(self, tensor: Tensor, dim: int) -> Origin | None:
        """What the size of a dimension may count; no operator may run for that, since it would ask for sizes, too."""
        return (self.labels(tensor), dim) if self.is_labelled(tensor) else None

    def freeze_counted(self, origins: Sequence[Origin]) -> None:
        """Hold the channels that are counted where sizes were asked for."""
        for labels, dim in origins:
            if labels.shape[dim] > 1:
                self.freeze(labels, "its channels are counted")

    def remember(self, place: Place, lane: Tensor) -> None:
        """Record that a module remembers how many channels lie in a lane."""
        self.memory.note(place, lane.numpy(), user_location())

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        super().seen(func, args, kwargs, out)
        self.refuse_harmful_branching((args, kwargs))
        call = Call(func, args, kwargs, out)
        if self.suspicious and self.signature(func, args, kwargs) in self.suspicious:
            self._suspect(call)
        overwritten = self._overwritten(call) if func._schema.is_mutable else []
        rule = unknown if "out" in kwargs else rule_for(func)
        rule(self, call)
        for target, labels in overwritten:
            results = self.labels(target).reshape(-1).numpy()
            self.nodes.append(Overwriting(labels.reshape(-1).numpy(), results, innermost_module()))
        if func.is_view and isinstance(args[0], Tensor):
            for view in pytree.tree_leaves(out):
                view._otprune_aliased = args[0]._otprune_aliased = True  # type: ignore[attr-defined]

    def labels(self, tensor: Tensor) -> Tensor:
        """The labels of `tensor`, as many dimensions as it has."""
        found = getattr(tensor, "_otprune_labels", None)
        return unlabelled(tensor.dim()) if found is None else found

    def is_labelled(self, tensor: object) -> bool:
        return getattr(tensor, "_otprune_labels", None) is not None

    def mark(self, tensor: Tensor, labels: Tensor) -> None:
        tensor._otprune_labels = labels  # type: ignore[attr-defined]

    def parameter(self, tensor: object) -> Parameter | None:
        """The parameter or buffer that `tensor` is, or is a rearranged view of."""
        name = self.name_of(tensor)
        if name is not None:
            return Parameter(name, tuple(range(tensor.dim())))  # type: ignore[attr-defined]
        return getattr(tensor, "_otprune_parameter", None)

    def mark_parameter(self, tensor: Tensor, parameter: Parameter) -> None:
        tensor._otprune_parameter = parameter  # type: ignore[attr-defined]

    def fresh(self, *shape: int) -> Tensor:
        """New labels, one for each element of `shape`."""
        number = math.prod(shape)
        self.count += number
        return torch.arange(self.count - number, self.count).view(shape)

    def tie(self, left: Tensor, right: Tensor, why: str) -> None:
        """Make labels one and the same; what meets "no channel" must stay."""
        left, right = torch.broadcast_tensors(left, right)
        self.freeze_lonely(left, right, why)
        a, b = left.reshape(-1).numpy(), right.reshape(-1).numpy()
        self.ties.append((a, b))

    def lane(self, tensor: Tensor, dim: int, why: str) -> Tensor:
        """One label for each position along `dim`, where whatever lies at the same one counts as one channel."""
        lanes = along(self.labels(tensor), dim, tensor.shape[dim])
        if lanes.shape[1] == 1:
            return lanes[:, 0]
        self.tie(lanes[:, :1], lanes, why)
        writes = self.fresh(len(lanes))
        self.nodes.append(Meeting(lanes.numpy(), writes.numpy()))
        return writes

    def freeze_lonely(self, left: Tensor, right: Tensor, why: str) -> None:
        """A channel that meets "no channel" must stay."""
        lonely = (left == NO_CHANNEL) != (right == NO_CHANNEL)
        if lonely.any():
            self.freeze(torch.maximum(left, right)[lonely], why)

    def use(self, name: str, axis: int, labels: Tensor) -> None:
        """Labels that run along an axis of a parameter; a second use of the parameter ties them to the first."""
        earlier = self.uses.setdefault((name, axis), labels)
        if earlier is labels:
            self._freeze_if_size_is_kept(name)
        else:
            self.tie(earlier, labels, f"{name} is used for different channels")

    def _freeze_if_size_is_kept(self, name: str) -> None:
        module = self._modules[name.rpartition(".")[0]]
        if _keeps_its_sizes(type(module)):
            self.freeze_parameter(name, f"{type(module).__name__} keeps its sizes to itself")

    def freeze(self, labels: Tensor, reason: str) -> None:
        """Record that these labels must stay, and which line of the model is the cause."""
        kept = labels[labels != NO_CHANNEL].reshape(-1).numpy()
        if kept.size:
            self.nodes.append(Frozen(kept, reason, user_location()))

    def freeze_parameter(self, name: str, reason: str) -> None:
        """Record that a parameter is read in a way that fixes its shape."""
        self.nodes.append(Frozen(np.zeros(0, np.int64), reason, user_location(), name))

    def note_pieces(self, *pieces: Tensor) -> None:
        """Record what channels were cut into, and which line of the model did that."""
        for piece in pieces:
            self.nodes.append(Shaped(self.labels(piece).numpy(), tuple(sizes_of(piece, self.on_data)), user_location()))

    def _suspect(self, call: Call) -> None:
        tensors = [t for t in pytree.tree_leaves((call.args, call.kwargs)) if self.is_labelled(t)]
        labels = [np.zeros(0, np.int64), *(self.labels(t).reshape(-1).numpy() for t in tensors)]
        reason = f"{call.func} runs in evaluation mode alone"
        self.suspects.append(Frozen(np.concatenate(labels), reason, user_location()))

    def _overwritten(self, call: Call) -> list[tuple[Tensor, Tensor]]:
        """What an in-place operator writes into, with the labels from before; what others see through a view stays."""
        targets = [t for t in (*call.args[:1], call.kwargs.get("out")) if isinstance(t, Tensor) and self.is_labelled(t)]
        for target in targets:
            if getattr(target, "_otprune_aliased", False):
                self.freeze(self.labels(target), f"{call.func} writes into a view of another tensor")
        return [(target, self.labels(target)) for target in targets]


def _makes_channels(node: Node) -> TypeGuard[Affine | Mix | Pointwise | Carry]:
    """Whether it writes what the model is bound to read, unlike the places of maxima."""
    return isinstance(node, Affine | Mix | Pointwise) or (isinstance(node, Carry) and node.keeps != "nothing")


def _keeps_its_sizes(kind: type[nn.Module]) -> bool:
    """Whether torch's own code in it counts on sizes that surgery does not know how to change."""
    counting = {base for base in kind.__mro__ if base.__module__.startswith("torch.nn.modules.")}
    return bool(counting - _WITHOUT_SIZES) and not issubclass(kind, _RESIZABLE)
