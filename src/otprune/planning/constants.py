"""Which channels are constant once some are zero, and what that constant is. Evaluated by the operators themselves."""

from typing import Any

import numpy as np
import torch

from otprune.channels.graph import Affine, Carry, ChannelGraph, Flags, Hole, Meeting, Mix, Pointwise, Zeros
from otprune.planning.branches import PRODUCTS, Branches
from otprune.planning.weights import Array, Weights

UNKNOWN = np.nan


def constants(graph: ChannelGraph, start: dict[str, Array], branches: Branches, weights: Weights) -> Array:
    """The constant that each label carries, or NaN.

    `start` gives for some batch norms the constants of their channels, NaN where they have none: zero for what is
    masked, and whatever else the caller wants to follow.
    """
    values = np.full(graph.count, UNKNOWN)
    for index, node in enumerate(graph.nodes):
        if isinstance(node, Affine):
            given = start.get(node.layer, np.full(len(node.writes), UNKNOWN))
            values[node.writes] = np.where(np.isnan(given), _affine(node, values, weights, given), given)
        elif isinstance(node, Pointwise):
            survivor = branches.survivors.get(index)
            if survivor is not None:
                values[node.writes] = values[node.labels_of(survivor)]
            else:
                values[node.writes] = _pointwise(node, values, weights)
        elif isinstance(node, Carry):
            values[node.writes] = _carry(node, values)
        elif isinstance(node, Meeting):
            read = values[node.reads]
            values[node.writes] = np.where((read == read[:, :1]).all(axis=1), read[:, 0], UNKNOWN)
        elif isinstance(node, Zeros):
            values[node.writes] = 0
        elif isinstance(node, Mix):
            _mix(node, values, weights)
    return values


def _pointwise(node: Pointwise, values: Array, weights: Weights) -> Array:
    """The operator itself, run on the constants its operands carry."""
    result = np.full(len(node.writes), UNKNOWN)
    labelled = node.labelled
    known = ~np.isnan(values[labelled[0]])
    for labels in labelled[1:]:
        known &= ~np.isnan(values[labels])
    if known.any() and _has_all(node):
        result[known] = _evaluated(node, values, weights, known)
    if node.func in PRODUCTS:
        for labels in labelled:
            result[values[labels] == 0] = 0
    return result


def _has_all(node: Pointwise) -> bool:
    """Whether every operand has channels or is a parameter with a value for each."""
    pairs = zip(node.operands, node.parameters, strict=True)
    return all(labels is not None or parameter is not None for labels, parameter in pairs)


def _evaluated(node: Pointwise, values: Array, weights: Weights, known: Flags) -> Array:
    def filled(argument: Any) -> Any:
        if not isinstance(argument, Hole):
            return argument
        labels, parameter = node.operands[argument.operand], node.parameters[argument.operand]
        found = np.resize(weights[parameter], known.shape) if parameter is not None else values[labels]
        filling = torch.from_numpy(found[known])
        dtype = node.dtypes[argument.operand]
        return filling if dtype.is_floating_point else filling.to(dtype)  # truth values are no numbers to torch

    result: Array = node.func(*map(filled, node.arguments), **node.keywords).double().numpy()
    return result


def _affine(node: Affine, values: Array, weights: Weights, given: Array) -> Array:
    """What becomes of the constants it reads, those that it would make others of than are given left out."""
    read = np.where(np.isnan(given), values[node.reads], UNKNOWN)
    if node.mean is None or node.var is None or not node.settled or np.isnan(read).all():
        return np.full(len(read), UNKNOWN)
    size = len(read)
    scale = weights.get(node.weight, 1.0, size) / np.sqrt(weights[node.var] + node.eps)
    return (read - weights[node.mean]) * scale + weights.get(node.bias, 0.0, size)


def _carry(node: Carry, values: Array) -> Array:
    read = values[node.reads]
    if node.keeps == "constants":
        return read
    return np.where(read == 0, 0.0, UNKNOWN) if node.keeps == "zeros" else np.full(len(read), UNKNOWN)


def _mix(node: Mix, values: Array, weights: Weights) -> None:
    """A group that reads nothing but constants writes constants, unless padding makes the border different."""
    read = values[node.reads]
    constant = ~np.isnan(read).any(axis=1)
    if node.padded or node.transposed:
        constant &= (read == 0).all(axis=1)
    if not constant.any():
        return
    written = weights.get(node.bias, 0.0, node.writes.size).reshape(node.writes.shape)[constant]
    if read[constant].any():
        written = written + np.einsum("goi,gi->go", summed_kernel(node, weights)[constant], read[constant])
    values[node.writes[constant]] = written


def summed_kernel(node: Mix, weights: Weights) -> Array:
    """The weight summed over kernel positions, as (group, written, read)."""
    weight = weights[node.weight]
    flat: Array = weight.reshape(*weight.shape[:2], -1).sum(axis=2)
    blocks: Array = flat.reshape(node.groups, -1, flat.shape[1])
    return blocks.transpose(0, 2, 1) if node.transposed else blocks
