"""What needs a GPU is marked `gpu`, and skipped where there is none; `make gpu-tests` runs it, and keeps a record."""

from typing import TypeVar

import pytest
import torch

T = TypeVar("T")

MARKS = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # compiling warns of things that are not ours to mend
)
GPU = pytest.param("cuda", marks=MARKS)


def needs_gpu(test: T) -> T:
    """A test that is for a GPU alone."""
    for mark in MARKS:
        test = mark(test)
    return test
