"""Sizes are whole numbers like any other, which tell when they are calculated with, and leave nothing behind."""

import copy
import gc
import math
import operator
import pickle
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import otprune as ot
from otprune.channels.sizes import Listener, Size, sizes_told_apart
from tests.toy_nets import Toy, make
from tests.toys.hard_coded import HardCodedSplit

# Not heard is what Python's own numbers do with a size to their right, such as 0.5 * n: rehearsing the pruned model
# finds those, by the number.
COUNTED: list[Callable[[int], float]] = [
    *(float, math.sqrt, lambda n: n / 2, lambda n: 1 / n),
    *(lambda n: n**-0.5, lambda n: 2**n, lambda n: n * 0.5, lambda n: n + 0.5),
]
WHOLE = [operator.neg, lambda n: n // 3, lambda n: 20 - n, lambda n: n % 3, lambda n: 3 * n]


@pytest.mark.parametrize("calculate", COUNTED)
def test_what_is_calculated_from_a_size_is_heard_and_right(calculate: Callable[[int], float]) -> None:
    heard: list[object] = []
    with sizes_told_apart(Listener(calculated=heard.append)):
        x = torch.zeros(2, 8)
        found = calculate(x.shape[1])
    assert found == calculate(8) and len(heard) == 1


@pytest.mark.parametrize("calculate", WHOLE)
def test_whole_numbers_made_of_sizes_are_sizes(calculate: Callable[[int], int]) -> None:
    assert calculate(Size(8)) == calculate(8) and isinstance(calculate(Size(8)), Size)


def test_a_size_that_is_kept_is_a_number_and_keeps_nothing_alive() -> None:
    with sizes_told_apart(Listener()):
        x = torch.zeros(2, 8)
        kept, gone = x.shape[1], weakref.ref(x)
        del x
    gc.collect()
    assert gone() is None and float(kept) == 8.0
    assert type(copy.deepcopy(kept)) is int and type(pickle.loads(pickle.dumps(kept))) is int


def test_traces_in_threads_and_inside_one_another_leave_torch_as_it_was() -> None:
    before = (torch.Tensor.size, "shape" in vars(torch.Tensor), F.scaled_dot_product_attention)
    threads = [threading.Thread(target=ot.trace, args=(make(HardCodedSplit), Toy.example())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    silent = Listener()
    with sizes_told_apart(silent), sizes_told_apart(silent):
        assert torch.zeros(2, 8).split(torch.tensor(4), 1)[0].shape == (2, 4)
    assert before == (torch.Tensor.size, "shape" in vars(torch.Tensor), F.scaled_dot_product_attention)
