"""Recalibration: statistics are re-estimated by the formula, and nothing else is touched."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import ModelError
from tests.checking import MaskRule, shrink
from tests.toy_nets import AuxiliaryHead, Sequential, make
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
