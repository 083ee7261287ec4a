"""Operators that combine positions and leave channels apart, and reductions over any dimension."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from otprune.channels.graph import Carry, Meeting, Sum, Zeros
from otprune.channels.labels import laid_out, varying
from otprune.channels.rules.shaping import SELECTION_WITH_ZEROS
from otprune.channels.rules.unknown import freeze_arguments
from otprune.location import innermost_module

if TYPE_CHECKING:
    from otprune.channels.tracer import Call, Tracer

aten = torch.ops.aten

Keeps = Literal["constants", "zeros", "nothing"]


def pool(tracer: "Tracer", call: "Call") -> None:
    """A largest value, or an average that padding and divisors have no part in: a constant stays one."""
    _over_positions(tracer, call, len(call.args[1]), "constants")


def largest(tracer: "Tracer", call: "Call") -> None:
    """Padding that is below everything has no part in a largest value, either, if no window holds nothing else."""
    source, own = call.args[0], tracer.labels(call.args[0])
    inside = getattr(source, "_otprune_inside", None)
    if inside is None or inside.padded is not own or not _reaches_inside(call, inside.amounts):
        pool(tracer, call)
        return
    tracer.mark(source, inside.labels)
    pool(tracer, call)
    tracer.mark(source, own)


def _reaches_inside(call: "Call", amounts: Sequence[int]) -> bool:
    """Whether every window of a pool holds more than padding, that which it has itself included."""
    kernel, _, padding, dilation, ceil_mode = (*call.args[1:], *_POOL_DEFAULTS[len(call.args) - 2 :])
    return not ceil_mode and max(dilation) == 1 and max(amounts) + max(padding) < min(kernel)


# Stride, padding, dilation, and whether windows may begin in what is left over.
_POOL_DEFAULTS: tuple[Any, ...] = ([], [0], [1], False)


class _Inside(NamedTuple):
    """The labels of a tensor that was padded by some amounts, and the labels that the result then had."""

    labels: Tensor
    amounts: Sequence[int]
    padded: Tensor


def average_pool(tracer: "Tracer", call: "Call") -> None:
    """Padding is averaged in, so only without it, and without a divisor of the user's, does a constant stay one."""
    padding = call.args[3] if len(call.args) > 3 else [0]
    divisor = call.args[6] if len(call.args) > 6 else None
    _over_positions(tracer, call, len(call.args[1]), "zeros" if any(padding) or divisor else "constants")


def interpolation(tracer: "Tracer", call: "Call") -> None:
    _over_positions(tracer, call, call.args[0].dim() - 2, "constants")


def padding_with_own_values(tracer: "Tracer", call: "Call") -> None:
    _over_positions(tracer, call, len(call.args[1]) // 2, "constants")


def padding(tracer: "Tracer", call: "Call") -> None:
    """Padding with zeros leaves a zero channel zero; with another value, nothing stays constant."""
    source, amounts = call.args[:2]
    value = call.args[2] if len(call.args) > 2 else 0
    moved = [source.dim() - 1 - place // 2 for place, amount in enumerate(amounts) if amount]
    if moved == [1] and hasattr(innermost_module(), SELECTION_WITH_ZEROS):
        _zeros_put_in(tracer, call)
        return
    _carry(tracer, call, moved, "nothing" if value else "zeros")
    if value == -math.inf and not _crosses(tracer, source, moved):
        call.out._otprune_inside = _Inside(tracer.labels(source), amounts, tracer.labels(call.out))


def _zeros_put_in(tracer: "Tracer", call: "Call") -> None:
    """What a pruned model's batch norm reads where a channel is gone."""
    lane = tracer.lane(call.args[0], 1, "different channels meet one scaling factor")
    zeros = tracer.fresh(1)
    tracer.nodes.append(Zeros(zeros.numpy()))
    tracer.mark(call.out, laid_out(torch.cat([zeros, lane]), 1, call.out.dim()))


def mean(tracer: "Tracer", call: "Call") -> None:
    _reduction(tracer, call, "constants")


def total(tracer: "Tracer", call: "Call") -> None:
    """A sum over channels loses nothing when a zero goes."""
    dims = _dims(call)
    if not tracer.is_labelled(call.args[0]) or not _crosses(tracer, call.args[0], dims):
        _reduction(tracer, call, "zeros")
        return
    labels = tracer.labels(call.args[0])
    if all(dim in dims for dim in varying(labels)):
        tracer.nodes.append(Sum(labels.reshape(-1).numpy()))
    else:
        _sum_of_channels(tracer, call, dims)


def _sum_of_channels(tracer: "Tracer", call: "Call", dims: list[int]) -> None:
    """Channels that lie at the same place of several dimensions, and are added to one."""
    source = tracer.labels(call.args[0])
    kept = [dim for dim in range(source.dim()) if dim not in dims]
    lanes = source.permute(*kept, *dims).flatten(len(kept))
    met, writes = tracer.fresh(*lanes.shape[:-1]), tracer.fresh(*lanes.shape[:-1])
    tracer.tie(lanes[..., :1], lanes, "added to positions that carry no channel")
    tracer.nodes.append(Meeting(lanes.flatten(0, -2).numpy(), met.reshape(-1).numpy()))
    tracer.nodes.append(Carry(met.reshape(-1).numpy(), writes.reshape(-1).numpy(), "zeros"))
    tracer.mark(call.out, writes if call.out.dim() == writes.dim() else _with_dims(writes, dims))


def _with_dims(labels: Tensor, dims: list[int]) -> Tensor:
    for dim in sorted(dims):
        labels = labels.unsqueeze(dim)
    return labels


def extremum(tracer: "Tracer", call: "Call") -> None:
    _reduction(tracer, call, "constants")


def spread_out(tracer: "Tracer", call: "Call") -> None:
    """A softmax over positions leaves channels apart; over channels it counts them, unless each has several places."""
    source = call.args[0]
    dim = call.args[1] % max(source.dim(), 1)
    if not tracer.is_labelled(source) or not _crosses(tracer, source, [dim]):
        _carry(tracer, call, [], "nothing")
    elif len(varying(tracer.labels(source))) == 1:
        freeze_arguments(tracer, call, f"{call.func} runs over channels")
    else:
        labels = tracer.labels(source)
        tracer.tie(labels.narrow(dim, 0, 1), labels, "weighed against positions that carry no channel")
        _carry(tracer, call, [], "nothing")


def _reduction(tracer: "Tracer", call: "Call", keeps: Keeps) -> None:
    _carry(tracer, call, _dims(call), keeps)
    for out in _results(call):
        if tracer.is_labelled(out) and out.dim() < call.args[0].dim():
            tracer.mark(out, tracer.labels(out).squeeze(tuple(_dims(call))))


def _dims(call: "Call") -> list[int]:
    rank = call.args[0].dim()
    dims: Any = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
    if dims is None or dims == []:
        return list(range(rank))
    return [dim % max(rank, 1) for dim in ([dims] if isinstance(dims, int) else dims)]


def _crosses(tracer: "Tracer", source: Tensor, dims: list[int]) -> bool:
    labels = tracer.labels(source)
    return any(labels.shape[dim] > 1 for dim in dims)


def _over_positions(tracer: "Tracer", call: "Call", rank: int, keeps: Keeps) -> None:
    """The last `rank` dimensions are positions, and combined; batch and channel dimensions stay."""
    dims = call.args[0].dim()
    _carry(tracer, call, list(range(dims - rank, dims)), keeps)


def _carry(tracer: "Tracer", call: "Call", combined: list[int], keeps: Keeps) -> None:
    """Channels stay apart unless they lie along a combined dimension; a second result, of indices, has them too."""
    source = call.args[0]
    if not tracer.is_labelled(source):
        parameter = tracer.parameter(source)
        if parameter is not None:
            tracer.freeze_parameter(parameter.name, f"{call.func} is computed from it")
        return
    if _crosses(tracer, source, combined):
        freeze_arguments(tracer, call, f"{call.func} runs over channels")
        return
    labels = tracer.labels(source)
    for out, kept in zip(_results(call), (keeps, "nothing"), strict=False):
        writes = tracer.fresh(*labels.shape)
        tracer.nodes.append(Carry(labels.reshape(-1).numpy(), writes.reshape(-1).numpy(), kept))
        tracer.mark(out, writes)


def _results(call: "Call") -> list[Tensor]:
    return [call.out] if isinstance(call.out, Tensor) else list(call.out)


def _overloads(*names: str) -> list[Any]:
    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    return [getattr(packet, overload) for packet in packets for overload in packet.overloads()]


_INTERPOLATIONS = [
    f"{prefix}{kind}"
    for prefix in ("upsample_", "_upsample_")
    for kind in (
        *("nearest1d", "nearest2d", "nearest3d", "nearest_exact1d", "nearest_exact2d", "nearest_exact3d"),
        *("linear1d", "bilinear2d", "bicubic2d", "trilinear3d", "bilinear2d_aa", "bicubic2d_aa"),
    )
]

RULES = {
    **dict.fromkeys(
        _overloads("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d", "max_pool2d", "max_pool3d"),
        largest,
    ),
    **dict.fromkeys(
        _overloads(
            *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
            *("adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
        ),
        pool,
    ),
    **dict.fromkeys(_overloads("avg_pool1d", "avg_pool2d", "avg_pool3d"), average_pool),
    **dict.fromkeys(_overloads(*_INTERPOLATIONS), interpolation),
    **dict.fromkeys(_overloads("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"), padding_with_own_values),
    **dict.fromkeys(_overloads("replication_pad1d", "replication_pad2d", "replication_pad3d"), padding_with_own_values),
    aten.constant_pad_nd.default: padding,
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.sum.default: total,
    aten.sum.dim_IntList: total,
    **dict.fromkeys((aten.amax.default, aten.amin.default, aten.max.dim, aten.min.dim), extremum),
    **dict.fromkeys((aten._softmax.default, aten._log_softmax.default), spread_out),
}
