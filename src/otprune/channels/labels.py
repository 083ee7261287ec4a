"""Labels: a number for every channel value, laid out like the tensor that carries it.

The labels of a tensor are an integer tensor that broadcasts to its shape: a dimension along which nothing varies has
size 1. Label 0 means "no channel": model inputs, positions, constants.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

NO_CHANNEL = 0


def compress(labels: Tensor) -> Tensor:
    """Shrink to size 1 every dimension along which the labels do not vary.

    Comparisons run in numpy: these arrays are too small for torch's threads to pay.

    >>> compress(torch.tensor([[3, 4], [3, 4]]))
    tensor([[3, 4]])
    """
    for dim in reversed(range(labels.dim())):
        if labels.shape[dim] > 1 and (labels.stride(dim) == 0 or _is_uniform(labels, dim)):
            labels = labels.narrow(dim, 0, 1)
    return labels


def _is_uniform(labels: Tensor, dim: int) -> bool:
    lanes = np.moveaxis(labels.numpy(), dim, 0)
    return np.array_equal(lanes[0], lanes[1]) and bool((lanes == lanes[:1]).all())


def varying(labels: Tensor) -> list[int]:
    """The dimensions of compressed labels along which they vary.

    >>> varying(torch.tensor([[3, 4]]))
    [1]
    """
    return [dim for dim, size in enumerate(labels.shape) if size > 1]


def unlabelled(rank: int) -> Tensor:
    """The labels of a tensor of `rank` dimensions that carries no channel."""
    return torch.full((1,) * rank, NO_CHANNEL)


def along(labels: Tensor, dim: int, size: int) -> Tensor:
    """Labels as a matrix, one row for each of the `size` positions along `dim`, the distinct readings in columns.

    >>> along(torch.tensor([[[5], [6]]]), 1, 2)
    tensor([[5],
            [6]])
    """
    return laid_out_fully(labels, dim, size).movedim(dim, 0).reshape(size, -1)


def laid_out(column: Tensor, dim: int, rank: int) -> Tensor:
    """A vector of labels laid along `dim` of a tensor of `rank` dimensions.

    >>> laid_out(torch.tensor([5, 6]), 1, 4).shape
    torch.Size([1, 2, 1, 1])
    """
    shape = [1] * rank
    shape[dim] = len(column)
    return column.view(shape)


def laid_out_fully(labels: Tensor, dim: int, size: int) -> Tensor:
    """Compressed labels, with dimension `dim` expanded to its full size."""
    shape = list(labels.shape)
    shape[dim] = size
    return labels.expand(shape)


def broadcast(labels: Sequence[Tensor]) -> list[Tensor]:
    """Labels of several operands, expanded to their common shape."""
    return list(torch.broadcast_tensors(*labels))
