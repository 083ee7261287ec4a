"""Where a network spends its time, layer by layer, and where pruning gains less time than FLOPs."""

import pytest
import torch
from measuring.layer_times import Network, Way, breakdown, each_alone, explained, lagging, looked_at, reason
from torch import Tensor, nn

import otprune as ot
from otprune.deploy.layers import Layer, Shape, layers_of
from otprune.deploy.profiling import WARM_UP, Part, _executed, profiled
from otprune.deploy.runtimes import Runtime
from otprune.errors import DeployError
from tests.gpu import needs_gpu

SHAPE = Shape(1, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), groups=1)


class Preactivated(nn.Module):
    """A batch norm that no layer takes in, beside one that does, and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.conv = nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, padding=1)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(16, 4)

    def forward(self, images: Tensor) -> Tensor:
        first = torch.relu(self.norm(self.stem(images)))
        both = first + self.conv(torch.relu(self.second(first)))
        return self.head(self.pool(both).mean((2, 3)))


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime", "openvino"])
def test_every_runtime_tells_the_times_of_layers_under_the_models_own_names(runtime: Runtime) -> None:
    parts = profiled(Preactivated().eval(), torch.randn(1, 3, 8, 8), runtime, runs=3)
    assert [part.name for part in parts if part.is_layer] == ["stem", "conv", "head"]
    assert any("pool" in part.kind.lower() for part in parts if not part.is_layer)
    assert all(part.ms >= 0 for part in parts) and sum(part.ms for part in parts) > 0


def test_what_openvino_counts_as_no_time_in_some_runs_is_a_part_all_the_same() -> None:
    """It counts whole microseconds, and of a layer below one it says that it did not run."""
    quick, fused = [2e-6, 1e-6, *[0.0] * (WARM_UP + 1)], [0.0] * (WARM_UP + 3)
    assert list(_executed({("mean", "ReduceMean"): quick, ("relu", "Relu"): fused})) == [("mean", "ReduceMean")]
    parts = profiled(Preactivated().eval(), torch.randn(1, 3, 2, 2), "openvino", runs=500)
    assert [part.name for part in parts if part.is_layer] == ["stem", "conv", "head"]


def test_compiled_networks_tell_nothing_of_their_layers() -> None:
    with pytest.raises(DeployError, match="torch-compile joins layers"):
        profiled(Preactivated(), torch.randn(1, 3, 8, 8), "torch-compile")


def made(a: float, b: float, pool: float, channels: tuple[int, int, int]) -> Network:
    read, between, written = channels
    layers = {"a": Layer("a", SHAPE, read, between), "b": Layer("b", SHAPE, between, written)}
    parts = [Part("a", "Conv", a), Part("p", "MaxPool", pool), Part("b", "Conv", b)]
    return Network(parts, layers, {name: layer.inputs * layer.outputs for name, layer in layers.items()})


def test_a_layer_lags_by_what_it_takes_beyond_its_share_of_the_multiply_adds() -> None:
    found = breakdown(made(4.0, 8.0, 1.0, (4, 8, 8)), made(2.0, 5.0, 0.9, (4, 4, 8)))
    assert [row["lag_ms"] for row in found["layers"]] == [0.0, 1.0]
    assert [row["channels_after"] for row in found["layers"]] == [(4, 4), (4, 8)]
    assert found["lag_ms_of_layers"] == 1.0 and found["lag_ms_elsewhere"] == pytest.approx(0.9 - 1.0 * 48 / 96)
    assert lagging(found) == ["b"]


def test_a_layer_that_is_gone_takes_nothing() -> None:
    after = made(2.0, 4.0, 1.0, (4, 4, 8))
    without = Network(after.parts[:2], {"a": after.layers["a"]}, {"a": after.macs["a"]})
    row = breakdown(made(4.0, 8.0, 1.0, (4, 8, 8)), without)["layers"][1]
    assert (row["ms_after"], row["lag_ms"], row["channels_after"]) == (0.0, 0.0, None)


def test_the_reason_is_the_odd_number_of_channels_only_where_a_round_one_is_quicker() -> None:
    pairs = {"old": (64, 64), "new": (30, 50), "rounded": (32, 64)}
    assert "no multiples of 16" in reason(pairs, {"old": 2.0, "new": 1.0, "rounded": 0.8}, 10_000_000, 4_000_000)
    said = reason(pairs, {"old": 2.0, "new": 1.0, "rounded": 1.1}, 10_000_000, 4_000_000)
    assert said == "alone, with 30→50 channels, it does 4.0 billion multiply-adds a second, before 5.0"


def test_a_real_network_is_looked_at_and_its_layers_are_measured_alone() -> None:
    model, images = Preactivated().eval(), torch.randn(1, 3, 8, 8)
    nn.init.uniform_(model.second.weight, 0, 2)
    small = ot.prune(model, ot.plan(model, images, ot.GlobalRatio(0.3)))
    way = Way("onnxruntime", threads=1, runs=3)
    before, after = (looked_at(one, images, way) for one in (model, small))
    assert before.macs["conv"] > after.macs["conv"] and set(before.ms) == {"stem", "conv", "head"}
    assert explained("conv", before, after, way)


def test_layers_timed_by_themselves_are_layers_of_the_network() -> None:
    layers = layers_of(Preactivated().eval(), torch.randn(1, 3, 8, 8))
    parts = each_alone(layers, Way("torch", threads=1, runs=3))
    assert [part.name for part in parts] == ["stem", "conv", "head"] and all(part.is_layer for part in parts)
    assert all(part.ms > 0 for part in parts)


@needs_gpu
def test_on_a_gpu_every_layer_is_timed_by_itself() -> None:
    model, images, way = Preactivated().eval(), torch.randn(2, 3, 8, 8), Way("torch", 1, 3, "cuda")
    network = looked_at(model, images, way)
    assert set(network.ms) == {"stem", "conv", "head"} and min(network.ms.values()) > 0
    assert explained("conv", network, network, way)
