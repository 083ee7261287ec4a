"""Models that cannot be pruned: without batch norms, wrapped, compiled, or branching on their data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import ModelError, PenaltyError
from tests.refusals import busy, line_of, refused
from tests.toy_nets import Sequential, Toy, make


class TestModels:
    def test_without_a_batch_norm(self) -> None:
        model = busy(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)))
        example = torch.randn(2, 3, 8, 8)
        refused(
            ModelError, "Sequential has no batch norm", "Put BatchNorm layers",
            models=(model,), call=lambda: ot.plan(model, example),
        )  # fmt: skip
        refused(PenaltyError, "no batch norm", "affine=True", models=(model,), call=lambda: ot.L1Penalty(model, 1e-4))
        refused(ModelError, "no batch norm", models=(model,), call=lambda: ot.recalibrate(model, [example]))

    def test_with_batch_norms_that_have_no_scaling_factors(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Conv2d(4, 2, 1))
        refused(
            ModelError, "no batch norm with scaling factors",
            models=(model,), call=lambda: ot.plan(model, torch.zeros(2, 3, 8, 8)),
        )  # fmt: skip

    def test_wrapped_in_data_parallel(self) -> None:
        model = make(Sequential)
        self._refused_everywhere(nn.DataParallel(model), model, "DataParallel", "model.module")

    def test_wrapped_in_distributed_data_parallel(self, process_group: None) -> None:
        model = make(Sequential)
        wrapped = nn.parallel.DistributedDataParallel(model)
        self._refused_everywhere(wrapped, model, "DistributedDataParallel", "model.module")

    def test_wrapped_by_torch_compile(self) -> None:
        model = make(Sequential)
        self._refused_everywhere(torch.compile(model, backend="eager"), model, "torch.compile", "model._orig_mod")

    def test_compiled_in_place(self) -> None:
        model = make(Sequential)
        plan = ot.plan(model, model.example())
        model.compile(backend="eager")
        self._refused_everywhere(model, model, "compiled in place", "compile the result", plan=plan)

    def test_with_a_part_compiled_in_place(self) -> None:
        model = make(Sequential)
        model.conv2.compile(backend="eager")
        refused(ModelError, "conv2 was compiled", models=(model,), call=lambda: ot.plan(model, model.example()))

    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
    def test_scripted(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        scripted = torch.jit.script(model)
        refused(
            ModelError, "ScriptModule", "the module it was made from",
            models=(model,), call=lambda: ot.plan(scripted, torch.zeros(1, 3, 8, 8)),
        )  # fmt: skip

    def _refused_everywhere(self, wrapped: Any, model: Toy, *words: str, plan: ot.PruningPlan | None = None) -> None:
        made = plan or ot.plan(model, model.example())
        target = Path("never-written.safetensors")
        for call in (
            lambda: ot.plan(wrapped, model.example()),
            lambda: ot.trace(wrapped, model.example()),
            lambda: ot.prune(wrapped, made),
            lambda: ot.save(wrapped, target),
        ):
            refused(ModelError, *words, models=(model,), call=call)
        assert not target.exists()

    @pytest.fixture
    def process_group(self, tmp_path: Path) -> Iterator[None]:
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", world_size=1, rank=0)
        yield
        torch.distributed.destroy_process_group()


class BranchesOnData(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        if x.sum() > 0:
            x = -x
        return self.head(torch.relu(self.bn2(self.conv2(x))))


class AssertsOnData(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        assert (x < 1e9).all()
        return super().forward(x)


class LoopsOnData(Sequential):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 1):
            x = x / 2
        return super().forward(x)


@pytest.mark.parametrize(
    ("toy", "culprit"),
    [
        (BranchesOnData, "if x.sum() > 0"),
        (AssertsOnData, "assert (x < 1e9)"),
        (LoopsOnData, "while bool("),
    ],
)
def test_a_model_that_branches_on_data(toy: type[Toy], culprit: str) -> None:
    model = busy(make(toy))
    refused(
        ModelError, "branches on its data", line_of(toy.forward, culprit), "torch.where",
        models=(model,), call=lambda: ot.plan(model, toy.example()),
    )  # fmt: skip
