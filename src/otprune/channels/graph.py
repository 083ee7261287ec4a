"""What a trace found: operators as relations between labels, in the order they ran."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]
Signature = tuple[Hashable, ...]


ANY_SIZE = -1  # of an output that depends on data


@dataclass(frozen=True, eq=False)
class Mix:
    """A convolution or linear layer: in each group, every label written depends on every label read.

    `reads` and `writes` have one row a group. `padded` says that a constant read does not stay one near the border.
    """

    weight: str
    bias: str | None
    reads: Labels
    writes: Labels
    transposed: bool
    padded: bool

    @property
    def groups(self) -> int:
        return len(self.reads)


@dataclass(frozen=True, eq=False)
class Affine:
    """A batch norm: each label written depends on one label read.

    `positions` counts a channel's values in one image. It is `settled` where it normalizes by the running statistics
    and not by those of its batch. `incoming` are the labels that arrive, and `picks` the places
    among them that the batch norm reads: all of them, unless an earlier pruning put a selection in front. A
    `selectable` one, which is a module called on what it reads, can be given such a selection, and zeros for channels
    that are gone.
    """

    layer: str
    weight: str | None
    bias: str | None
    mean: str | None
    var: str | None
    eps: float
    settled: bool
    positions: int
    incoming: Labels
    picks: Labels
    writes: Labels
    selectable: bool

    @property
    def reads(self) -> Labels:
        return self.incoming[self.picks]

    @property
    def tensors(self) -> list[str]:
        return [name for name in (self.weight, self.bias, self.mean, self.var) if name is not None]


@dataclass(frozen=True, eq=False)
class Hole:
    """Stands in recorded arguments for the operand of that number."""

    operand: int


@dataclass(frozen=True, eq=False)
class Pointwise:
    """An element-by-element operator. `operands` are aligned with `writes`; None is an operand without channels.

    `parameters` names those of them that hold one value for each label written, or one for all. `whole` tells which
    operands have the result's own shape, `dtypes` what they hold. `runner` is the module that combines several.
    """

    func: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    operands: tuple[Labels | None, ...]
    parameters: tuple[str | None, ...]
    whole: tuple[bool, ...]
    dtypes: tuple[torch.dtype, ...]
    writes: Labels
    runner: nn.Module | None = None

    @property
    def labelled(self) -> list[Labels]:
        return [labels for labels in self.operands if labels is not None]

    def labels_of(self, operand: int) -> Labels:
        """The labels of an operand that has channels."""
        labels = self.operands[operand]
        assert labels is not None
        return labels


@dataclass(frozen=True, eq=False)
class Carry:
    """A pool, a mean over positions, an interpolation, and what becomes of a channel that is constant in space."""

    reads: Labels
    writes: Labels
    keeps: Literal["constants", "zeros", "nothing"]


@dataclass(frozen=True, eq=False)
class Meeting:
    """Different labels, at different positions, of what some layer takes for one channel: a row for each channel.

    They go together, and `writes` is a constant only where the whole row is that constant.
    """

    reads: Labels
    writes: Labels


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum over channels: a zero more or less changes nothing."""

    reads: Labels


@dataclass(frozen=True, eq=False)
class Zeros:
    """Channels of zeros that an earlier pruning puts in front of what a batch norm reads."""

    writes: Labels


@dataclass(frozen=True, eq=False)
class Overwriting:
    """What carried `labels` was changed where it lies, by an operator that `writer` runs, and carries `results` now."""

    labels: Labels
    results: Labels
    writer: nn.Module | None


@dataclass(frozen=True, eq=False)
class Attached:
    """A parameter or buffer that meets channels element by element: `labels` run along its axis `axis`."""

    name: str
    axis: int
    labels: Labels


@dataclass(frozen=True, eq=False)
class Partition:
    """Channels cut into pieces of equal size, a row a piece: each must keep as many as the others."""

    pieces: Labels


@dataclass(frozen=True, eq=False)
class Counted:
    """A number that a module remembers: how many of these channels there are."""

    module: str
    attribute: str
    item: int | None
    labels: Labels


@dataclass(frozen=True, eq=False)
class Shaped:
    """What came of a view or a split that cuts channels into pieces: its labels, its shape, and the line.

    Which of the sizes follow the number of channels only that line knows; a pruned model has to come to what the
    labels say.
    """

    labels: Labels
    shape: tuple[int, ...]
    location: str


@dataclass(frozen=True, eq=False)
class Frozen:
    """Labels that must stay, and why. `labels` is empty where a whole parameter is meant.

    That an output of the model stays is `expected` and needs no mention.
    """

    labels: Labels
    reason: str
    location: str
    parameter: str | None = None
    expected: bool = False

    def __str__(self) -> str:
        return f"{self.reason} ({self.location})"


Node = (
    Mix
    | Affine
    | Pointwise
    | Carry
    | Meeting
    | Sum
    | Zeros
    | Overwriting
    | Attached
    | Partition
    | Counted
    | Shaped
    | Frozen
)


def reads_of(node: Node) -> list[Labels]:
    """The labels whose values a node looks at."""
    if isinstance(node, Pointwise):
        return node.labelled
    if isinstance(node, Mix | Affine | Carry | Meeting | Sum):
        return [node.reads]
    return [node.labels] if isinstance(node, Frozen) else []


@dataclass(frozen=True, eq=False)
class ChannelGraph:
    """The channels of a model: nodes in execution order, pairs of labels tied to one another, sizes of all tensors.

    `operators` counts those that ran in training mode (True) and run in evaluation mode (False), as far as it runs.
    `notes` tells what the trace could not find out.
    """

    nodes: tuple[Node, ...]
    ties: tuple[tuple[Labels, Labels], ...]
    reshaped: Labels
    count: int
    shapes: Mapping[str, tuple[int, ...]]
    outputs: list[list[int]]
    numbers: Mapping[str, list[str]]
    operators: Mapping[bool, Counter[Signature] | None]
    notes: tuple[str, ...]

    def of(self, *kinds: type) -> Iterator[Any]:
        """The nodes of the given kinds, in execution order."""
        return (node for node in self.nodes if isinstance(node, kinds))

    @cached_property
    def batch_norms(self) -> dict[str, Affine]:
        """The batch norms that have scaling factors, by the name of their layer; a shared one once."""
        found: dict[str, Affine] = {}
        for node in self.of(Affine):
            if node.weight is not None:
                found.setdefault(node.layer, node)
        return found

    def __str__(self) -> str:
        lines = [f"{len(self.batch_norms)} batch norms, {len(list(self.of(Mix)))} convolutions and linear layers"]
        lines += [f"frozen: {node}" for node in self.of(Frozen) if not node.expected]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def connected(count: int, pairs: Iterable[tuple[Labels, Labels]]) -> Labels:
    """The smallest label that each of `count` labels is connected to through pairs.

    >>> connected(4, [(np.array([1]), np.array([3]))])
    array([0, 1, 2, 1])
    """
    pairs = list(pairs)
    root = np.arange(count)
    if not pairs:
        return root
    left = np.concatenate([a for a, _ in pairs])
    right = np.concatenate([b for _, b in pairs])
    while True:
        low, high = np.minimum(root[left], root[right]), np.maximum(root[left], root[right])
        if np.array_equal(low, high):
            return root
        np.minimum.at(root, high, low)
        root = _flattened(root)


def _flattened(root: Labels) -> Labels:
    while True:
        further = root[root]
        if np.array_equal(further, root):
            return root
        root = further
