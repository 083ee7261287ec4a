"""Repair: statistics re-estimated by the formula and nothing else touched; constants folded, exactly where possible."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import otprune as ot
from otprune.errors import ModelError
from tests.checking import MaskRule, shrink
from tests.net_layers import conv, linear, norm
from tests.random_nets import randomize
from tests.toy_nets import (
    AuxiliaryHead,
    ResidualIdentity,
    ResidualProjection,
    Sequential,
    Toy,
    conv3,
    make,
    values,
)
from tests.unchanged import unchanged

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def batches(count: int, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) * (i + 1) + i for i in range(count)]


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


class TestRecalibrate:
    def test_statistics_are_the_average_of_the_batches_own(self) -> None:
        model = make(Sequential)
        data = batches(3, 4, 3, 8, 8)
        with torch.no_grad():
            seen = [model.conv1(batch) for batch in data]
        ot.recalibrate(model, data)
        means = torch.stack([x.mean((0, 2, 3)) for x in seen])
        variances = torch.stack([x.var((0, 2, 3), unbiased=True) for x in seen])
        torch.testing.assert_close(model.bn1.running_mean, means.mean(0))
        torch.testing.assert_close(model.bn1.running_var, variances.mean(0))
        assert model.bn1.num_batches_tracked == 3

    def test_later_layers_see_what_earlier_ones_normalize_by_the_batch(self) -> None:
        model = make(Sequential)
        batch = batches(1, 4, 3, 8, 8)[0]
        with torch.no_grad():
            x = model.conv1(batch)
            x = nn.functional.batch_norm(x, None, None, model.bn1.weight, model.bn1.bias, training=True)
            x = model.conv2(torch.relu(x))
        ot.recalibrate(model, [batch])
        torch.testing.assert_close(model.bn2.running_mean, x.mean((0, 2, 3)))

    def test_what_was_there_before_is_forgotten(self) -> None:
        model, other = make(Sequential), make(Sequential)
        other.bn1.running_mean.fill_(1e6)
        data = batches(2, 4, 3, 8, 8)
        ot.recalibrate(model, data)
        ot.recalibrate(other, data)
        assert torch.equal(model.bn1.running_mean, other.bn1.running_mean)

    def test_nothing_but_statistics_changes(self) -> None:
        model = nn.Sequential(make(Sequential), nn.Dropout(0.5), nn.BatchNorm2d(4, momentum=0.3).double())
        model.train()
        model[0].conv1.eval()
        model[2].eval()
        before = statistics(model)
        with pytest.raises(AssertionError, match=r"tensor .*running_mean"), unchanged(model):
            assert ot.recalibrate(model, batches(2, 4, 3, 8, 8)) is model
        # Put back what may change: all else is as it was.
        recalibrated = statistics(model)
        model.load_state_dict(before, strict=False)
        with unchanged(model):
            ot.recalibrate(model, batches(2, 4, 3, 8, 8))
            assert all(torch.equal(buffer, recalibrated[name]) for name, buffer in model.named_buffers())
            model.load_state_dict(before, strict=False)
        assert {name.rpartition(".")[2] for name in before} == set(STATISTICS)

    def test_dropout_does_not_act(self) -> None:
        class WithDropout(Sequential):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(nn.functional.dropout(x, 0.9, self.training))

        plain, dropping = make(Sequential), make(WithDropout).train()
        for model in (plain, dropping):
            ot.recalibrate(model, batches(1, 4, 3, 8, 8))
        assert torch.equal(plain.bn1.running_mean, dropping.bn1.running_mean)

    def test_a_batch_norm_that_no_batch_reaches_keeps_its_statistics(self) -> None:
        model = make(AuxiliaryHead).train()
        before = statistics(model)
        ot.recalibrate(model, batches(2, 4, 3, 8, 8))
        for name in STATISTICS:
            assert torch.equal(getattr(model.bn_auxiliary, name), before[f"bn_auxiliary.{name}"])
        assert not torch.equal(model.bn1.running_mean, before["bn1.running_mean"])

    @pytest.mark.parametrize("wrong", [torch.zeros(4, 5, 8, 8, dtype=torch.float64), {"image": torch.zeros(1)}, ()])
    def test_a_batch_that_fails_leaves_everything_as_it_was(self, wrong: Any) -> None:
        model = make(Sequential).train()
        with unchanged(model), pytest.raises((RuntimeError, TypeError, IndexError)):
            ot.recalibrate(model, [*batches(2, 4, 3, 8, 8), wrong])

    def test_a_loader_that_fails_or_is_interrupted_leaves_everything_as_it_was(self) -> None:
        def loader() -> Iterator[Tensor]:
            yield from batches(1, 4, 3, 8, 8)
            raise KeyboardInterrupt

        model = make(Sequential).train()
        with unchanged(model), pytest.raises(KeyboardInterrupt):
            ot.recalibrate(model, loader())

    def test_a_loader_without_batches(self) -> None:
        model = make(Sequential)
        with unchanged(model), pytest.raises(ModelError, match="no batch"):
            ot.recalibrate(model, [])

    def test_batches_of_every_kind_mean_the_same(self) -> None:
        data = batches(2, 4, 3, 8, 8)
        kinds: list[list[Any]] = [
            data,
            [(batch, torch.zeros(4)) for batch in data],
            [[batch, torch.zeros(4)] for batch in data],
            [{"x": batch} for batch in data],
        ]
        models = [ot.recalibrate(make(Sequential), kind) for kind in kinds]
        first = statistics(models[0])
        for model in models[1:]:
            assert all(torch.equal(buffer, first[name]) for name, buffer in model.named_buffers())

    def test_no_gradients_are_made(self) -> None:
        model = make(Sequential)
        ot.recalibrate(model, [batch.requires_grad_() for batch in batches(1, 4, 3, 8, 8)])
        assert all(parameter.grad is None for parameter in model.parameters())
        assert all(not buffer.requires_grad for buffer in model.buffers())

    def test_it_makes_up_for_the_shifts_that_pruning_throws_away(self) -> None:
        model = make(Sequential)
        shrink(model, {"bn1": [0, 1, 2]})
        data = batches(4, 16, 3, 8, 8)
        ot.recalibrate(model, data)
        plan = ot.plan(model, data[0], MaskRule())
        small = ot.prune(model, plan)
        before = (small(data[0]) - model(data[0])).abs().mean()
        ot.recalibrate(small, data)
        assert (small(data[0]) - model(data[0])).abs().mean() < 0.5 * before


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


def errors(model: nn.Module, example: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """How far the pruned model's output is from the original's own, not folded and folded."""
    plan = ot.plan(model, example, MaskRule())
    assert plan.masked
    small = ot.prune(model, plan)
    with torch.no_grad():
        expected = model(*example)
        before = (small(*example) - expected).abs()
        with unchanged(model):
            assert ot.fold_constants(small, model, plan) is small
        return before, (small(*example) - expected).abs()


def build(make_second: Callable[[], nn.Module]) -> Folding:
    """The network in float64, with weights that are always the same."""
    with torch.random.fork_rng(devices=[]):
        model = Folding(make_second()).double().eval()
    randomize(model, seed=0)
    return model


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
    ],
    ids=[
        *("1×1", "no padding", "stride and dilation", "grouped", "running mean", "grouped, running mean"),
        *("pools", "zero is not zero", "linear", "depthwise", "depthwise, batch norm"),
    ],
)
def test_folding_is_exact_without_padding(second: Callable[[], nn.Module]) -> None:
    model = with_constant_channels(build(second), "bn1", [1, 4])
    before, after = errors(model, Folding.example())
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
    generator = torch.Generator().manual_seed(seed)
    norms = {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    draws = {name: torch.rand(module.num_features, generator=generator) < 0.4 for name, module in norms.items()}
    shrink(model, {name: draw.nonzero().flatten().tolist() for name, draw in draws.items()})
    before, after = errors(model, Chain.example())
    assert after.mean() < 0.5 * before.mean()


class LinearBottlenecks(Toy):
    """Branches added to a stream without activations, which later blocks, a batch norm and a pool read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        for block in (2, 3):
            self.add_module(f"expand{block}", conv(2, 6, 8))
            self.add_module(f"bn_expand{block}", norm(2, 8))
            self.add_module(f"project{block}", conv(2, 8, 6))
            self.add_module(f"bn{block}", norm(2, 6))
        self.bn_last, self.mix, self.head = norm(2, 6), conv(2, 6, 5, bias=True), linear(6, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.bn1(self.conv1(x)).relu()
        x = x + self.bn2(self.project2(self.bn_expand2(self.expand2(x)).relu()))
        x = x + self.bn3(self.project3(self.bn_expand3(self.expand3(x)).relu()))
        return self.head(F.max_pool2d(x, 2).mean((2, 3))), self.bn_last(x).relu(), self.mix(x)


def without(model: Toy, *layers: str) -> Toy:
    """Scaling factors of zero: these layers emit nothing but their shift, which they keep."""
    for layer in layers:
        gamma = model.get_parameter(f"{layer}.weight")
        shrink(model, {layer: list(range(len(gamma)))})
        gamma.data.zero_()
    return model


def errors_of_all(model: Toy) -> tuple[float, float]:
    """The largest error of any output, not folded and folded."""
    plan = ot.plan(model, model.example(), MaskRule())
    assert plan.removed
    small = ot.prune(model, plan)
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*model.example()))
        found = [pytree.tree_leaves(small(*model.example()))]
        ot.fold_constants(small, model, plan)
        found.append(pytree.tree_leaves(small(*model.example())))
    before, after = (max(float((a - b).abs().max()) for a, b in zip(out, expected, strict=True)) for out in found)
    return before, after


@pytest.mark.parametrize("layers", [["bn2"], ["bn3"], ["bn2", "bn3"]], ids=" and ".join)
def test_the_constant_of_a_removed_branch_goes_into_every_layer_that_reads_the_sum(layers: list[str]) -> None:
    before, after = errors_of_all(without(make(LinearBottlenecks), *layers))
    assert before > 1e-2
    assert after < 1e-12


@pytest.mark.parametrize("layer", ["bn2", "bn_project"])
def test_the_constant_of_a_removed_branch_goes_into_the_layer_it_was_added_to(layer: str) -> None:
    before, after = errors_of_all(without(make(ResidualProjection), layer))
    assert before > 1e-2
    assert after < 1e-12


def test_the_constants_of_branches_on_channels_that_go_too() -> None:
    model = without(make(ResidualProjection), "bn2")
    model.head = conv(2, 8, 4, bias=True).double()
    shrink(model, {"bn_project": [1, 4]})
    model.get_parameter("bn_project.weight").data[[1, 4]] = 0
    before, after = errors_of_all(model)
    assert before > 1e-2
    assert after < 1e-12


def test_nothing_is_folded_of_a_branch_between_two_activations() -> None:
    model = without(make(ResidualIdentity), "bn3")
    plan = ot.plan(model, model.example(), MaskRule())
    small = ot.prune(model, plan)
    with unchanged(small):
        ot.fold_constants(small, model, plan)


def test_what_a_convolution_without_a_batch_norm_is_short_of_is_made_up_for_behind_the_sum() -> None:
    class Stream(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.conv2 = conv3(3, 6), norm(2, 6), conv(2, 6, 6)
            self.bn_last, self.head = norm(2, 6), conv(2, 6, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv1(x)
            return self.head(self.bn_last(x + self.conv2(self.bn1(x).relu())).relu())

    model = make(Stream)
    shrink(model, {"bn1": [1, 4]})
    model.bn1.weight.data[[1, 4]], model.bn1.bias.data[[1, 4]] = 0, 1.0
    before, after = errors(model, model.example())
    assert before.max() > 1e-2
    assert after.max() < 1e-12
