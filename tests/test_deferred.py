"""What a model looks at in a run on meta tensors is what it would see on real ones, and nothing else is computed."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import otprune as ot
from otprune.abstract import Watcher, watch
from otprune.deferred import Deferred

aten = torch.ops.aten
TENSORS = 3


class Silent(Watcher):
    """Looks at nothing, and lets the model look at everything."""

    def seen(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        pass

    def looks_at(self, value: Tensor) -> None:
        pass


class Program(nn.Module):
    """Runs steps on a few tensors, in place and on views of each other, and notes the numbers that it looks at."""

    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.5, -2.0, 0.5, 3.0]))
        self.register_buffer("count", torch.zeros(4))
        self.steps, self.looked_at = steps, deque[float]()  # no container that a run puts back

    def forward(self, x: Tensor) -> Tensor:
        self.looked_at.clear()
        tensors = [x, self.weight * 1.0, self.get_buffer("count")]
        for name, first, second in self.steps:
            EVERY_STEP[name](self, tensors, first, second)
        return torch.cat(tensors)

    def look(self, value: Tensor) -> None:
        """At one number."""
        self.looked_at.append(float(value.sum()))


def overwrite_part(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    tensors[first][1:3] = tensors[second][:2].clone()


def overwrite_some(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    tensors[first][tensors[second] > 0] = -1.0


def fresh(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    tensors[first] = torch.full((4,), 2.0, device=tensors[second].device)


def of_numbers(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    tensors[first] = tensors[second] + torch.tensor([1.0, 2.0, 3.0, 4.0], device=tensors[second].device)


def of_own_making(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    own = torch.ones(4)
    tensors[first] = tensors[second] + own
    own.mul_(5)
    tensors[second] = tensors[second] + own


def of_changing_data(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    own = torch.ones(4)
    tensors[first] = tensors[second] + own
    own.data.mul_(5)  # which no version tells
    tensors[second] = tensors[second] + own


def exchange(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    tensors[first].data = tensors[second] + 1


def other_memory(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    tensors[first] = tensors[first].clone().set_(tensors[second].clone())


def normalize(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    statistics, ones = tensors[second].detach()[:2], torch.ones(2, device=tensors[first].device)
    nn.functional.batch_norm(tensors[first].view(2, 2), statistics, ones, training=True, momentum=0.5)


def change_reshaped(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
    part = torch.cat([tensors[second].view(2, 2)] * 2, 1)[:, :2].relu()
    part.reshape(-1).add_(5)
    tensors[first] = part.flatten() + 0


def replace(function: Any) -> Any:
    def step(net: Program, tensors: list[Tensor], first: int, second: int) -> None:
        tensors[first] = function(tensors[first], tensors[second])

    return step


STEPS = {
    "sum": replace(torch.add),
    "product": replace(lambda a, b: a * b.clamp(-2, 2)),
    "alias": replace(lambda a, b: b),
    "view": replace(lambda a, b: b.view(2, 2).flatten()),
    "backwards": replace(lambda a, b: b.flip(0)),
    "relu in place": replace(lambda a, b: a.relu_()),
    "add in place": replace(lambda a, b: a.add_(b.clone())),
    "overwrite part": overwrite_part,
    "overwrite some": overwrite_some,
    "fresh": fresh,
    "of numbers": of_numbers,
    "of own making": of_own_making,
    "of changing data": of_changing_data,
    "add many in place": lambda net, tensors, first, second: torch._foreach_add_([tensors[first]], 1.0),
    "look": lambda net, tensors, first, second: net.look(tensors[first]),
}


# Where nothing but a run on data tells: each has to fall back to it.
ON_DATA = {
    "exchange": exchange,
    "other memory": other_memory,
    "normalize": normalize,
    "change reshaped": change_reshaped,
}
EVERY_STEP = STEPS | ON_DATA


def programs(steps: Iterable[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    index = st.integers(0, TENSORS - 1)
    return st.lists(st.tuples(st.sampled_from(sorted(steps)), index, index), min_size=1, max_size=25)


@settings(max_examples=300, deadline=None)
@given(programs(STEPS))
def test_numbers_are_those_of_a_run_on_data(steps: list[tuple[str, int, int]]) -> None:
    assert looked_at_alike(steps).values is not None, "the model was run on real tensors"


@settings(max_examples=200, deadline=None)
@given(programs(EVERY_STEP))
def test_what_meta_tensors_cannot_tell_is_computed_on_data(steps: list[tuple[str, int, int]]) -> None:
    looked_at_alike(steps)


@pytest.mark.parametrize("name", ON_DATA)
def test_each_of_these_is_run_on_data(name: str) -> None:
    looked_at_alike([("sum", 1, 0), (name, 1, 2), ("sum", 0, 1), (name, 2, 1), (name, 0, 1)])


def looked_at_alike(steps: list[tuple[str, int, int]]) -> Silent:
    """Run a program on meta tensors and on data: it has to see the same numbers, and nothing of the user's changes."""
    net = Program([*steps, *(("look", index, 0) for index in range(TENSORS))]).eval()
    state, example = {name: value.clone() for name, value in net.state_dict().items()}, torch.tensor([1.0, -1, 2, -3])
    given_before = example.clone()
    watcher, _ = watch(net, example, lambda: Silent(net), training=False)
    found = list(net.looked_at)
    assert torch.equal(example, given_before), "the run wrote into the example"
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items()), "it wrote into the model"
    with torch.no_grad():
        net(example)
    assert found == list(net.looked_at)
    return watcher


def test_only_what_is_looked_at_is_computed() -> None:
    values, source = Deferred(torch.device("cpu")), torch.empty(2, device="meta")
    values.know(source, torch.tensor([3.0, 4.0]))
    wanted, unwanted = torch.empty(2, device="meta"), torch.empty(2, device="meta")
    values.note(aten.mul.Tensor, (source, 2), {}, wanted)
    values.note(refuses_to_run, (source,), {}, unwanted)
    assert values.run(aten.sum.default, (wanted,), {}) == 14
    with pytest.raises(AssertionError, match="was computed"):
        values.run(aten.sum.default, (unwanted,), {})


def test_a_tensor_given_twice_is_one_tensor() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = deque[float]()

        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            first.add_(1)
            self.seen.append(float(second.sum()))
            return second

    net, example = Twice(), torch.zeros(3)
    watch(net, (example, example), lambda: Silent(net), training=False)
    assert list(net.seen) == [3.0] and example.sum() == 0


def test_memory_is_let_go_of_while_values_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(40):
                x = x * 1.01
            return x + float(x.flatten()[0])

    kept, know = deque[int](), Deferred.know

    def counting(values: Deferred, meta: Tensor, value: Tensor) -> None:
        know(values, meta, value)
        kept.append(len(values._known))

    monkeypatch.setattr(Deferred, "know", counting)
    chain = Chain()
    watch(chain, torch.zeros(10), lambda: Silent(chain), training=False)
    assert len(kept) > 40 and max(kept) < 10


class refuses_to_run:
    class _schema:
        arguments = ()

    def __new__(cls, *args: Any) -> Any:
        raise AssertionError("it was computed")


class Detector(nn.Module):
    """Looks at where the largest value is, and cuts a mask out of what a heavy head makes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.box = nn.Conv2d(8, 1, 1)
        self.head = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        size = 2 + int(self.box(features).flatten().argmax()) % 3
        return nn.functional.interpolate(self.head(features), size=(size, size), mode="bilinear")


def test_a_model_that_looks_at_its_data_is_pruned_exactly() -> None:
    torch.manual_seed(0)
    net, example = Detector().eval().double(), torch.randn(1, 3, 8, 8, dtype=torch.float64)
    for norm in (net.body[1], net.head[1]):
        norm.weight.data[::2] = norm.bias.data[::2] = 0
    plan = ot.plan(net, example, ot.OptimalThreshold())
    small = ot.prune(net, plan)
    assert small.body[1].num_features == small.head[1].num_features == 4
    torch.testing.assert_close(small(example), net(example))
    assert "looks at its data" in str(ot.trace(net, example))
