"""Random numbers that follow from a seed and from what they are for, not from what was drawn before."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, *purpose: int) -> int:
    """A seed for one purpose (an epoch, an image of it); purposes that differ at all get unrelated ones.

    >>> derived_seed(0, 1, 2) == derived_seed(0, 1, 2), derived_seed(0, 1, 2) == derived_seed(0, 2, 1)
    (True, False)
    """
    words = [number % 2**64 for number in (seed, *purpose)]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


def generator(seed: int, *purpose: int) -> torch.Generator:
    """A generator on the CPU for one purpose.

    >>> torch.randperm(4, generator=generator(0, 7)).equal(torch.randperm(4, generator=generator(0, 7)))
    True
    """
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, what torch, NumPy and Python draw on the CPU follows from the seed; outside, nothing has been drawn.

    >>> with seeded(1):
    ...     first = torch.rand(1), random.random()
    >>> with seeded(1):
    ...     first == (torch.rand(1), random.random())
    True
    """
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
