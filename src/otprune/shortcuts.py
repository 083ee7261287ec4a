"""Shapes of the commonest operators' results on meta tensors, found faster than torch finds them.

A meta tensor has a shape and no data, so this is all that such an operator does; torch's own way to it takes up to a
hundred times longer and would be most of a trace.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

BATCH_NORMS = frozenset(
    {
        aten.native_batch_norm.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_no_training.default,
        aten._batch_norm_with_update.default,
        aten._batch_norm_no_update.default,
        aten.cudnn_batch_norm.default,
    }
)


def _batch_norm(source: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    statistic = source.new_empty(0)
    return _same_shape(source), statistic, statistic


def _same_shape(source: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if not source.is_contiguous():
        return torch.empty_like(source)
    return torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device="meta")


def _itself(source: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return source


def _arithmetic(func: Any) -> Any:
    def shaped(left: Any, right: Any, **kwargs: Any) -> Any:
        if isinstance(right, Tensor) and left.dtype == right.dtype and left.dim() == right.dim():
            shape = [max(a, b) for a, b in zip(left.shape, right.shape, strict=True)]
            if all(a in (1, c) and b in (1, c) for a, b, c in zip(left.shape, right.shape, shape, strict=True)):
                return left.new_empty(shape) if left.shape != right.shape else _same_shape(left)
        return func(left, right, **kwargs)

    return shaped


def _mean(source: Tensor, dims: list[int] | None, keepdim: bool = False, **kwargs: Any) -> Tensor:
    if not dims or kwargs.get("dtype") is not None:
        return torch.mean(source, dims, keepdim, **kwargs)
    gone = {dim % source.dim() for dim in dims}
    shape = [1 if dim in gone else size for dim, size in enumerate(source.shape) if keepdim or dim not in gone]
    return source.new_empty(shape)


def _convolution(
    source: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Tensor:
    transposed, _, groups = rest
    fits = len(stride) == len(padding) == len(dilation) == source.dim() - 2 and source.dim() == weight.dim()
    if transposed or not fits or source.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        return aten.convolution.default(source, weight, bias, stride, padding, dilation, *rest)  # type: ignore[no-any-return]
    spans = zip(source.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    sizes = [(size + 2 * pad - gap * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, gap in spans]
    if min(sizes) < 1:
        return aten.convolution.default(source, weight, bias, stride, padding, dilation, *rest)  # type: ignore[no-any-return]
    return source.new_empty([source.shape[0], weight.shape[0], *sizes])


def _resizing(func: Any) -> Any:
    def shaped(source: Tensor, size: list[int], *args: Any, **kwargs: Any) -> Any:
        if source.dim() != len(size) + 2 or min(size) < 1 or not source.is_contiguous():
            return func(source, size, *args, **kwargs)
        return source.new_empty([*source.shape[:2], *size])

    return shaped


SHORTCUTS = {
    aten.convolution.default: _convolution,
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    **dict.fromkeys((aten.relu.default, aten.sigmoid.default, aten.silu.default, aten.hardswish.default), _same_shape),
    **dict.fromkeys((aten.relu_.default, aten.sigmoid_.default, aten.silu_.default, aten.hardswish_.default), _itself),
    **{func: _arithmetic(func) for func in (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor)},
    aten.mean.dim: _mean,
    **{func: _resizing(func) for func in (aten.upsample_bicubic2d.default, aten.upsample_bilinear2d.default)},
}
