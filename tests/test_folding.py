"""Constants of masked channels are folded into the layers that read them, exactly where possible."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.folding import errors
from tests.net_layers import conv, linear, norm
from tests.pruned_toys import drawn
from tests.random_nets import randomize
from tests.toy_nets import Toy, conv3, make, values
from tests.unchanged import unchanged


class Folding(Toy):
    """A convolution and a batch norm, then what the test asks for."""

    def __init__(self, second: nn.Module) -> None:
        super().__init__()
        self.conv1, self.bn1, self.second = conv3(3, 6), norm(2, 6), second

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.relu(self.bn1(self.conv1(x))))
        return out


def with_constant_channels(model: Folding, layer: str, channels: list[int]) -> Folding:
    """Zero scaling factors and large shifts: these channels emit nothing but their shift."""
    shrink(model, {layer: channels})
    model.get_parameter(f"{layer}.weight").data[channels] = 0
    model.get_parameter(f"{layer}.bias").data[channels] = torch.arange(1.0, len(channels) + 1).double()
    return model


def build(make_second: Callable[[], nn.Module]) -> Folding:
    """The network in float64, with weights that are always the same."""
    with torch.random.fork_rng(devices=[]):
        model = Folding(make_second()).double().eval()
    randomize(model, seed=0)
    return model


class NormalizedInput(nn.Module):
    """A batch norm that reads what is gone, added to one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn2, self.bn3, self.head = conv(2, 6, 6), norm(2, 6), norm(2, 6), conv(2, 6, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.bn2(self.conv(x)) + self.bn3(x)))
        return out


def then(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    "second",
    [
        lambda: conv(2, 6, 4, bias=True),
        lambda: conv(2, 6, 4, 3, bias=True),
        lambda: conv(2, 6, 4, 2, stride=2, dilation=2, bias=True),
        lambda: conv(2, 6, 6, 3, groups=2, bias=True),
        lambda: then(conv(2, 6, 4, 3), norm(2, 4), conv(2, 4, 2)),
        lambda: then(conv(2, 6, 6, 3, groups=2), norm(2, 6), conv(2, 6, 2)),
        lambda: then(nn.MaxPool2d(2), nn.SiLU(), nn.AvgPool2d(2), conv(2, 6, 4, bias=True)),
        lambda: then(nn.Sigmoid(), conv(2, 6, 4, bias=True)),
        lambda: then(nn.Flatten(), linear(6 * 8 * 8, 4)),
        lambda: then(conv(2, 6, 6, 1, groups=6, bias=True), nn.ReLU(), conv(2, 6, 4, bias=True)),
        lambda: then(conv(2, 6, 6, 1, groups=6), norm(2, 6), nn.ReLU(), conv(2, 6, 4, bias=True)),
        NormalizedInput,
    ],
    ids=[
        *("1×1", "no padding", "stride and dilation", "grouped", "running mean", "grouped, running mean"),
        *("pools", "zero is not zero", "linear", "depthwise", "depthwise, batch norm", "batch norm"),
    ],
)
def test_folding_is_exact_without_padding(second: Callable[[], nn.Module]) -> None:
    model = with_constant_channels(build(second), "bn1", [1, 4])
    before, after = errors(model, Folding.example())
    assert before.max() > 1e-3
    assert after.max() < 1e-12


@pytest.mark.parametrize("between", [nn.Identity, nn.Tanh])
def test_what_is_gone_behind_a_depthwise_convolution_is_folded_into_the_batch_norm_that_reads_zeros(
    between: type[nn.Module],
) -> None:
    model = build(lambda: then(conv(2, 6, 6, groups=6, bias=True), between(), norm(2, 6), nn.Sigmoid(), conv(2, 6, 4)))
    model.get_parameter("second.0.bias").data[:] = 0
    before, after = errors(with_constant_channels(model, "bn1", [1, 4]), Folding.example())
    assert before.max() > 1e-3
    assert after.max() < 1e-12


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("into", ["bias", "running mean"])
def test_folding_is_exact_away_from_padded_borders(groups: int, into: str) -> None:
    model = with_constant_channels(build(lambda: padded(groups, into)), "bn1", [1, 4])
    before, after = errors(model, Folding.example())
    assert inside(before, 1).max() > 1e-3
    assert inside(after, 1).max() < 1e-12
    assert after.max() > 1e-3
    assert after.mean() < before.mean()


def inside(images: Tensor, border: int) -> Tensor:
    return images[..., border:-border, border:-border]


def padded(groups: int, into: str) -> nn.Module:
    if into == "bias":
        return conv3(6, 4, groups=groups, bias=True)
    return then(conv3(6, 4, groups=groups), norm(2, 4), conv(2, 4, 2))


def test_folding_into_a_transposed_convolution_is_exact_away_from_borders() -> None:
    model = build(lambda: nn.ConvTranspose2d(6, 4, 3))
    before, after = errors(with_constant_channels(model, "bn1", [1, 4]), Folding.example())
    assert inside(before, 2).max() > 1e-3
    assert inside(after, 2).max() < 1e-12


def test_folding_reaches_through_layers_that_read_nothing_but_constants() -> None:
    """A group whose inputs are all constant writes a constant, which its reader gets in its bias."""
    model = build(lambda: then(conv(2, 6, 6, groups=3, bias=True), nn.ReLU(), conv(2, 6, 4, bias=True)))
    before, after = errors(with_constant_channels(model, "bn1", [2, 3]), Folding.example())
    assert before.max() > 1e-3
    assert after.max() < 1e-12


def test_nothing_is_folded_where_every_shift_is_zero() -> None:
    model = with_constant_channels(build(lambda: conv3(6, 4, bias=True)), "bn1", [1, 4])
    model.bn1.bias.data[[1, 4]] = 0
    plan = ot.plan(model, Folding.example(), MaskRule())
    small = ot.prune(model, plan)
    with unchanged(small):
        ot.fold_constants(small, model, plan)


def test_a_plan_from_a_file_folds_like_the_plan_itself(tmp_path: Path) -> None:
    model = with_constant_channels(build(lambda: conv(2, 6, 4, bias=True)), "bn1", [1, 4])
    plan = ot.plan(model, Folding.example(), MaskRule())
    plan.save(tmp_path / "plan.json")
    ot.save(ot.prune(model, plan), tmp_path / "small.safetensors")
    small = ot.load(model, tmp_path / "small.safetensors")
    ot.fold_constants(small, model, ot.PruningPlan.load(tmp_path / "plan.json"))
    torch.testing.assert_close(small(*Folding.example()), model(*Folding.example()), rtol=0, atol=1e-12)


class Chain(Toy):
    """Convolutions that pad, as networks are made of them."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 12, 16, 12, 16)
        blocks = [(conv3(a, b), norm(2, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
        self.layers = nn.Sequential(*(layer for block in blocks for layer in block), conv(2, widths[-1], 4, bias=True))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out

    @staticmethod
    def example() -> tuple[Tensor, ...]:
        return (values(4, 3, 16, 16),)


@pytest.mark.parametrize("seed", range(5))
def test_folding_brings_the_output_closer(seed: int) -> None:
    model = make(Chain)
    randomize(model, seed)
    shrink(model, drawn(model, 0.4, seed))
    before, after = errors(model, Chain.example())
    assert after.mean() < 0.5 * before.mean()
