"""Latencies of layers in a table, and the largest network that a latency allows."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

import otprune as ot
from otprune.deploy.latencies import Grid, LatencyTable, Points, measured_grid
from otprune.deploy.layers import DEPTHWISE, Layer, Shape, layers_of
from otprune.deploy.lone_layers import alone, nothing
from otprune.deploy.runtimes import Runtime
from otprune.deploy.stopwatch import FILE, Stopwatch, key
from otprune.errors import DeployError, TrainingError
from otprune.experiments.choosing import Chosen, Target, choose
from otprune.experiments.experiment import Pruning
from otprune.experiments.meeting_latency import ATTEMPTS, ROUNDINGS
from otprune.experiments.reproduce.records import Record
from otprune.experiments.reproduce.restored import pruned_alike
from otprune.experiments.trials import Trials
from tests.command_line import results, run_here
from tests.small_runs import EXPERIMENT, pipeline

LINEAR = Shape(batch=1, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1)
CONV = Shape(batch=1, size=(8, 8), kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
DIGIT = torch.zeros(1, 1, 8, 8)


def products(shape: Shape, channels: Points) -> list[float]:
    return [float(inputs * outputs) for inputs, outputs in channels]


def test_between_points_it_is_linear_along_both_axes_and_outside_as_at_the_edge() -> None:
    grid = Grid([10, 20, 40], [8, 16], [[1.0, 2.0], [3.0, 4.0], [5.0, 8.0]])
    for inputs, outputs, ms in ((10, 8, 1.0), (20, 16, 4.0), (40, 16, 8.0), (15, 8, 2.0), (10, 12, 1.5), (30, 12, 5.0)):
        assert grid.at(inputs, outputs) == pytest.approx(ms), (inputs, outputs)
    assert grid.at(1, 1) == 1.0 and grid.at(99, 99) == 8.0 and grid.at(15, 99) == pytest.approx(3.0)


def test_what_is_linear_in_the_channels_is_told_exactly_everywhere_on_the_grid() -> None:
    grid = measured_grid(CONV, 64, 48, products)
    assert grid.inputs[-1] == 64 and grid.outputs[-1] == 48
    assert all(grid.at(i, o) == pytest.approx(i * o) for i in range(4, 65) for o in range(3, 49))


def test_more_channels_never_take_less_time_whatever_was_measured() -> None:
    noise = torch.Generator().manual_seed(0)
    grid = measured_grid(CONV, 64, 64, lambda shape, pairs: torch.rand(len(pairs), generator=noise).tolist())
    rows = torch.tensor(grid.ms)
    assert bool((rows.diff(dim=0) >= 0).all()) and bool((rows.diff(dim=1) >= 0).all())


def test_a_grouped_convolution_is_measured_in_whole_groups_and_a_depthwise_one_along_one_axis() -> None:
    asked: list[tuple[int, int]] = []

    def note(shape: Shape, channels: Points) -> list[float]:
        asked.extend(channels)
        return products(shape, channels)

    measured_grid(Shape(1, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), groups=4), 64, 32, note)
    assert len(asked) > 9 and all(inputs % 4 == outputs % 4 == 0 for inputs, outputs in asked)
    asked.clear()
    grid = measured_grid(Shape(1, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), DEPTHWISE), 64, 64, note)
    assert len(asked) == 6 and all(inputs == outputs for inputs, outputs in asked)
    assert grid.at(64, 64) == 64 * 64 and grid.at(32, 32) == 32 * 32


class Counting:
    """Counts what it is asked to measure."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = []

    def __call__(self, shape: Shape, channels: Points) -> Sequence[float]:
        self.shapes.append(shape)
        return products(shape, channels)


def test_layers_of_one_shape_are_measured_once_and_never_again_from_the_file(tmp_path: Path) -> None:
    layers = [Layer("a", CONV, 3, 64), Layer("b", CONV, 64, 32), Layer("c", LINEAR, 64, 10)]
    first = Counting()
    LatencyTable(first, tmp_path / FILE, "here").cover(layers)
    assert first.shapes == [CONV, LINEAR]
    again = Counting()
    table = LatencyTable(again, tmp_path / FILE, "here")
    table.cover(layers)
    assert table.milliseconds(layers) == pytest.approx(4 * 64 + 64 * 32 + 640)  # 3 lies below the least measured, 4
    assert not again.shapes
    elsewhere = Counting()
    LatencyTable(elsewhere, tmp_path / FILE, "elsewhere").cover(layers)
    assert len(elsewhere.shapes) == 2
    assert set(json.loads((tmp_path / FILE).read_text())) == {"here", "elsewhere"}


def test_what_stands_elsewhere_in_the_file_stays_even_where_it_cannot_be_encoded(tmp_path: Path) -> None:
    others = '{"elsewhere": "\\ud800"}'
    (tmp_path / FILE).write_text(others)
    LatencyTable(products, tmp_path / FILE, "here").cover([Layer("a", LINEAR, 4, 4)])
    content = json.loads((tmp_path / FILE).read_text())
    assert set(content) == {"here", "elsewhere"} and content["elsewhere"] == "\ud800"


def test_what_a_table_was_not_measured_for_is_measured_when_it_is_asked_for() -> None:
    counting = Counting()
    table = LatencyTable(counting)
    assert table.milliseconds([Layer("a", LINEAR, 32, 10)]) == 320
    table.cover([Layer("b", LINEAR, 64, 10)])
    assert table.milliseconds([Layer("b", LINEAR, 64, 10)]) == 640 and len(counting.shapes) == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"here": [{"layer": {}}]}', '{"here": 3}'])
def test_a_damaged_table_is_refused_with_its_file(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(DeployError, match=r"latencies\.json: .* Delete it, and it is measured again"):
        LatencyTable(products, tmp_path / FILE, "here")


def test_the_layers_of_a_network_are_those_that_run_with_the_sizes_they_run_at() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 4, 1, groups=2),
        nn.Flatten(),
        nn.Linear(4 * 36, 10, bias=False),
    )
    found = layers_of(net, torch.zeros(2, 3, 16, 16))
    assert [(layer.name, layer.inputs, layer.outputs) for layer in found] == [
        ("0", 3, 8),
        ("2", 8, 8),
        ("3", 8, 4),
        ("5", 144, 10),
    ]
    assert [layer.shape.size for layer in found] == [(16, 16), (8, 8), (6, 6), ()]
    assert [layer.shape.groups for layer in found] == [1, DEPTHWISE, 2, 1]
    assert found[0].shape.stride == (2, 2) and found[0].shape.batch == 2
    assert all(Shape.from_dict(json.loads(json.dumps(layer.shape.to_dict()))) == layer.shape for layer in found)


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime", "openvino"])
def test_layers_alone_give_what_they_give_in_a_network(runtime: Runtime) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, padding=1), nn.Conv2d(8, 8, (3, 1), groups=8), nn.Conv2d(8, 4, 1, groups=2), nn.Flatten()
    )
    images = torch.zeros(2, 3, 16, 16)
    for index, layer in enumerate(layers_of(net, images)):
        expected = net[: index + 1](images).shape
        assert alone(layer.shape, layer.inputs, layer.outputs, runtime).output().shape == expected
    assert alone(LINEAR, 6, 3, runtime).output().shape == (1, 3)
    assert nothing(runtime).output().shape == (1, 1)


def test_compiled_layers_have_no_latency_of_their_own() -> None:
    with pytest.raises(DeployError, match="torch-compile joins layers"):
        alone(LINEAR, 1, 1, "torch-compile")


def test_tables_are_kept_by_hardware_runtime_and_threads() -> None:
    assert len({key("torch", 1), key("torch", 2), key("onnxruntime", 1), key("openvino", 1)}) == 4


def test_a_network_is_predicted_by_its_layers_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    net, images = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 4)), torch.zeros(1, 3, 8, 8)
    watch = Stopwatch(images, "torch", 1, tmp_path / FILE)
    predicted = watch.predicted(net)
    assert predicted > 0 and watch.measured(net) > 0
    assert Stopwatch(images, "torch", 1, tmp_path / FILE).predicted(net) == predicted


def chain(channels: int = 40) -> nn.Module:
    """Two batch norms, of which the second has more large |γ|."""
    net = nn.Sequential(
        *(nn.Conv2d(1, channels, 1), nn.BatchNorm2d(channels), nn.ReLU()),
        *(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 1, 1)),
    )
    steps = torch.arange(1, channels + 1) / channels
    net[1].weight, net[4].weight = nn.Parameter(steps), nn.Parameter(steps.sqrt())
    return net


@cache
def all_networks() -> list[tuple[tuple[int, int], float]]:
    """How wide they are, and their share of the FLOPs: everything that shifts and multiples can make of the chain."""
    tried = [Trials(chain(), DIGIT, ot.OptimalThreshold(), None, lambda m: m, round_to=n) for n in ROUNDINGS]
    found = [trials.at(index) for trials in tried for index in range(trials.last + 1)]
    return [((len(one.plan.layers[0].kept), len(one.plan.layers[1].kept)), one.flops) for one in found]


def wide(model: nn.Module) -> tuple[int, int]:
    first, second = (model.get_submodule(name).get_parameter("weight") for name in ("1", "4"))
    return len(first), len(second)


class Made:
    """A clock by a made table: a network takes as long as its middle layer multiplies, in blocks of some channels.

    In truth it takes `slower` times as long as predicted, which is by `block`, and `late` more, which is not known.
    """

    def __init__(self, slower: float = 1.0, block: int = 1, late: float = 0.0) -> None:
        self.slower, self.block, self.late = slower, block, late
        self.timed: list[tuple[int, int]] = []

    def predicted(self, model: nn.Module) -> float:
        return float(wide(model)[0] * wide(model)[1])

    def measured(self, model: nn.Module) -> float:
        self.timed.append(wide(model))
        first, second = (-(-count // self.block) * self.block for count in wide(model))
        return self.slower * first * second + self.late


def chosen(clock: Made, budget: float) -> Chosen:
    return choose(chain(), DIGIT, ot.OptimalThreshold(), Target("latency", budget), None, lambda m: m, clock=clock)


@pytest.mark.parametrize("budget", [1600, 1000, 401, 37, 1])
def test_the_largest_network_within_the_budget_is_found_by_a_true_table(budget: int) -> None:
    clock = Made()
    found = chosen(clock, budget)
    first, second = wide(ot.prune(chain(), found.plan))
    largest = max(flops for (a, b), flops in all_networks() if a * b <= budget)
    assert first * second <= budget
    assert ot.cost(ot.prune(chain(), found.plan), DIGIT).flops / ot.cost(chain(), DIGIT).flops == largest
    assert found.latency is not None and found.latency["measured_ms"] == first * second


def test_what_was_predicted_is_recorded_beside_what_was_measured() -> None:
    found = chosen(Made(slower=0.5), 500.0)
    assert found.latency is not None
    assert found.latency["budget_ms"] == 500 and found.latency["unpruned_ms"] == 800
    assert found.latency["predicted_ms"] == pytest.approx(found.latency["measured_ms"])
    assert 450 < found.latency["measured_ms"] <= 500 and found.latency["round_to"] in ROUNDINGS
    unpruned, *steps = found.steps
    assert unpruned["flops"] == 1.0 and all(step["latency"] is not None for step in steps)
    (own,) = [s for s in steps if (s["shift"], s["round_to"]) == (shift_of(found), found.latency["round_to"])]
    assert own["latency"] == found.latency["measured_ms"]


def shift_of(found: Chosen) -> float:
    return float(found.plan.rule.get("log10", 0.0))


@pytest.mark.parametrize("late", [100.0, 300.0, -60.0])
def test_a_prediction_that_missed_is_corrected_until_the_budget_is_met(late: float) -> None:
    clock = Made(late=late)
    found = chosen(clock, 600.0)
    first, second = wide(ot.prune(chain(), found.plan))
    assert 0.97 * 600 < first * second + late <= 600
    assert len(clock.timed) <= 1 + ATTEMPTS * len(ROUNDINGS)
    if late > 0:
        assert any(a * b + late > 600 for a, b in clock.timed[1:])  # the first one missed it


@pytest.mark.parametrize(("budget", "width"), [(300.0, (16, 16)), (400.0, (24, 16))])
def test_where_channels_are_computed_in_blocks_they_are_rounded_up_to_whole_ones(
    budget: float, width: tuple[int, int]
) -> None:
    found = chosen(Made(block=8), budget)
    assert wide(ot.prune(chain(), found.plan)) == width
    assert found.latency is not None and found.latency["round_to"] > 1
    # The most important of those that would go stay.
    assert [layer.kept for layer in found.plan.layers] == [list(range(40 - count, 40)) for count in width]
    rule = ot.Shifted(ot.OptimalThreshold(), shift_of(found))
    assert [len(layer.kept) for layer in ot.plan(chain(), DIGIT, rule).layers] != list(width)


def test_a_latency_that_cannot_be_met_is_told_with_what_can() -> None:
    message = r"latency=20ms was not met: the quickest network tried takes 31 ms, the unpruned one 1630 ms"
    with pytest.raises(TrainingError, match=message):
        chosen(Made(late=30.0), 20.0)


def test_a_latency_without_a_clock_is_refused() -> None:
    with pytest.raises(TrainingError, match="latency is chosen by measuring"):
        choose(chain(), DIGIT, ot.OptimalThreshold(), Target("latency", 1.0), None, lambda m: m)


def test_the_accuracy_of_the_network_chosen_is_told_where_images_are_held_out() -> None:
    accuracy = {(40, 40): 0.9}
    found = choose(
        chain(),
        DIGIT,
        ot.OptimalThreshold(),
        Target("latency", 400.0),
        lambda model: accuracy.get(wide(model), 0.8),
        lambda model: model,
        clock=Made(block=8),
    )
    assert [step["accuracy"] for step in found.steps if step["accuracy"] is not None] == [0.9, 0.8]


def test_a_run_meets_a_latency_that_was_measured_and_its_record_says_how(tmp_path: Path) -> None:
    trained = run_here("train", model="tests.small_runs:net", data="digits", epochs=1, device="cpu", out=tmp_path)
    assert trained.code == 0, trained.err
    done = run_here("prune", latency="1s", latency_runtime="onnxruntime", out=tmp_path, device="cpu")
    assert done.code == 0, done.err
    found = results(tmp_path)
    assert found["latency"]["budget_ms"] == 1000 >= found["latency"]["measured_ms"]
    assert found["cost_after"]["flops"] <= found["cost_before"]["flops"]
    (made_with,) = json.loads((tmp_path / FILE).read_text())
    assert "onnxruntime" in made_with and "threads: 1" in made_with


def test_a_network_rounded_for_its_latency_is_restored_from_its_record(tmp_path: Path) -> None:
    one = pipeline(tmp_path, replace(EXPERIMENT, pruning=Pruning(latency="1ms")))
    model = one.fresh_model()
    for name in ("1", "4"):
        gamma = model.get_submodule(name).get_parameter("weight").data
        gamma[: len(gamma) // 2 + 1] = 1e-7
    plan = ot.plan(model, one.example(), ot.OptimalThreshold(), round_to=4)
    kept = [len(layer.kept) for layer in plan.layers]
    assert kept == [8, 12]  # not 7 and 11
    layers = [vars(layer) | {"kept": len(layer.kept)} for layer in plan.layers]
    record = Record("place", one.experiment, {"results": {"layers": layers, "latency": {"round_to": 4}}})
    again = pruned_alike(one.fresh_model(), one.example(), record)
    assert [len(layer.kept) for layer in again.layers] == kept
