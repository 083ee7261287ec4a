"""Pruning a large model takes little more memory than the two models that lie beside each other at its end."""

import pytest
from large_model import MOST, measure
from measuring.memory import STATUS, in_a_fresh_process

WIDTH, BLOCKS = 512, 5  # 24 million parameters, 94 MB: its layers are 9.4 MB each
# What does not grow with the model: the plan's lists of channels, the trace, and heap that is not given back.
CONSTANT = 8 << 20


@pytest.mark.skipif(not STATUS.exists(), reason="peaks of memory are read from Linux' /proc")
def test_planning_and_pruning_needs_no_more_than_2_2_times_the_model() -> None:
    mild = 0.02  # the fewer channels go, the larger is the model that lies beside the first one
    found = in_a_fresh_process(measure, "plan and prune", mild, WIDTH, BLOCKS, 0, None)
    size = found["bytes_of_model"]
    assert found["bytes_of_result"] == pytest.approx((1 - mild) ** 2 * size, rel=0.02)
    assert size + found["bytes_of_result"] < found["bytes_at_most"] <= MOST * size + CONSTANT
