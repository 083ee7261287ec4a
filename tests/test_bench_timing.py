"""How models are timed: in turn, warmed up, on cores of their own; statistics of what was measured."""

import gc
import os

import numpy as np
import pytest
import torch

from otprune.deploy.bench import compared
from otprune.deploy.pinning import pinned
from otprune.deploy.timing import Latency, interleaved, on_the_gpu, summarized, turns
from otprune.errors import DeployError
from tests.gpu import needs_gpu


class Clockwork:
    """Models that take a given time and note when they run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.collecting: set[bool] = set()

    def model(self, name: str, seconds: float) -> "Model":
        return Model(self, name, seconds)


class Model:
    def __init__(self, clockwork: Clockwork, name: str, seconds: float) -> None:
        self.clockwork, self.name, self.taken = clockwork, name, seconds

    def __call__(self) -> float:
        self.clockwork.ran.append(self.name)
        self.clockwork.collecting.add(gc.isenabled())
        return self.taken


def test_every_model_has_its_turn_in_every_round_and_the_order_changes() -> None:
    rounds = list(turns(["a", "b", "c"], iters=100, turn=5))
    assert len(rounds) == 60 and all(count == 5 for _, count in rounds)
    orders = [tuple(name for name, _ in rounds[start : start + 3]) for start in range(0, 60, 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert {order[0] for order in orders} == {"a", "b", "c"} and len(set(orders)) > 3
    assert list(turns(["a", "b", "c"], iters=100, turn=5)) == rounds  # the same draws every time


def test_the_last_turn_is_as_long_as_there_are_runs_left() -> None:
    counts = [count for name, count in turns(["a", "b"], iters=23, turn=10) if name == "a"]
    assert counts == [10, 10, 3]


def test_warming_up_comes_first_and_the_first_run_of_a_turn_does_not_count() -> None:
    clockwork = Clockwork()
    models = {name: clockwork.model(name, seconds) for name, seconds in (("a", 1.0), ("b", 2.0))}
    measured = interleaved(models, iters=12, warm_up=3)
    assert measured == {"a": [1.0] * 12, "b": [2.0] * 12}
    assert clockwork.ran[:6] == ["a"] * 3 + ["b"] * 3
    after = clockwork.ran[6:]
    assert len(after) == 2 * (1 + 10 + 1 + 2)
    assert {"".join(after[:22]), "".join(after[22:])} <= {"a" * n + "b" * n for n in (11, 3)} | {
        "b" * n + "a" * n for n in (11, 3)
    }


def test_whoever_watches_is_told_of_every_run_that_counts() -> None:
    told: list[int] = []
    clockwork = Clockwork()
    interleaved({"a": clockwork.model("a", 1.0), "b": clockwork.model("b", 1.0)}, 25, moved=told.append)
    assert sum(told) == 50


def test_no_garbage_is_collected_while_a_model_is_timed() -> None:
    clockwork = Clockwork()
    interleaved({"a": clockwork.model("a", 1.0)}, 5, warm_up=0)
    assert clockwork.collecting == {False} and gc.isenabled()


def test_statistics_are_those_of_the_samples_in_milliseconds() -> None:
    samples = np.random.default_rng(0).gamma(2.0, 1e-3, 1001)
    found = summarized(samples.tolist())
    ordered = np.sort(samples) * 1e3
    assert found.p50 == pytest.approx(ordered[500]) and found.p99 == pytest.approx(ordered[990])
    assert found.mean == pytest.approx(ordered.sum() / 1001) and found.runs == 1001
    assert found.sd == pytest.approx(np.sqrt(((ordered - found.mean) ** 2).sum() / 1000))


def test_a_single_run_has_no_spread() -> None:
    assert summarized([0.002]) == Latency(mean=2.0, sd=0.0, p50=2.0, p99=2.0, runs=1)


def test_each_is_compared_with_its_own_original_and_originals_with_none() -> None:
    found = {name: Latency(ms, 0.0, ms / 2, ms, 1) for name, ms in (("a", 8.0), ("b", 6.0), ("a/2", 2.0), ("b/2", 3.0))}
    rows = compared(found, {"a": None, "b": None, "a/2": "a", "b/2": "b"})
    assert [rows[name].get("times_faster") for name in found] == [None, None, 4.0, 2.0]
    assert [rows[name].get("times_faster_p50") for name in found] == [None, None, 4.0, 2.0]


@pytest.mark.parametrize("iters", [0, -1])
def test_nothing_to_time_is_refused(iters: int) -> None:
    with pytest.raises(DeployError, match=f"iters is {iters}: time at least one run"):
        interleaved({}, iters)


def test_threads_and_cores_are_as_many_as_asked_for_and_as_before_afterwards() -> None:
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    with pinned(1) as own:
        assert torch.get_num_threads() == 1 and os.sched_getaffinity(0) == set(own) and len(own) == 1
    assert torch.get_num_threads() == threads and os.sched_getaffinity(0) == cores


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(DeployError, match=r"threads is 5000, and this process may use \d+ cores"), pinned(5000):
        pass


@needs_gpu
def test_on_a_gpu_the_clock_stops_when_its_kernels_are_done() -> None:
    factor = torch.randn(4096, 4096, device="cuda")
    assert on_the_gpu(lambda: [factor @ factor for _ in range(20)]) > 0
    assert torch.cuda.current_stream().query()
