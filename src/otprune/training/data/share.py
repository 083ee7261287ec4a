"""Which images of every batch a process trains on, where several train together."""

from typing import NamedTuple

from torch import Tensor

from otprune.errors import TrainingError


class Share(NamedTuple):
    """One of several equal parts of every batch.

    >>> Share(1, of=2).within(6)
    slice(3, 6, None)
    """

    number: int = 0
    of: int = 1

    def size(self, batch: int) -> int:
        """How many images of a batch it has.

        >>> Share(0, of=2).size(5)
        Traceback (most recent call last):
            ...
        otprune.errors.TrainingError: batch must be a multiple of 2, the processes that share it, not 5
        """
        if batch % self.of:
            raise TrainingError(f"batch must be a multiple of {self.of}, the processes that share it, not {batch}")
        return batch // self.of

    def within(self, batch: int) -> slice:
        """Where in a batch its images are."""
        size = self.size(batch)
        return slice(self.number * size, (self.number + 1) * size)

    def of_batches(self, tensor: Tensor, batch: int) -> Tensor:
        """Its part of each of many batches that lie one after the other.

        >>> import torch
        >>> Share(1, of=2).of_batches(torch.arange(9), batch=4)
        tensor([2, 3, 6, 7])
        """
        if self.of == 1:
            return tensor
        full: Tensor = tensor[: len(tensor) // batch * batch].unflatten(0, (-1, batch))
        return full[:, self.within(batch)].flatten(0, 1)


WHOLE = Share()
