"""Plans of another model, and damaged ones."""

from pathlib import Path

import pytest
import torch
from torch import nn

import otprune as ot
from otprune.errors import PlanError
from tests.checking import shrink
from tests.refusals import busy, refused
from tests.toy_nets import ResidualIdentity, Sequential, TwoReaders, make


class TestPlans:
    def test_for_another_model(self) -> None:
        model, other = make(Sequential), busy(make(ResidualIdentity))
        shrink(model, {"bn1": [0]})
        plan = ot.plan(model, model.example())
        refused(
            PlanError, "another model (Sequential)", "Make a new plan for this ResidualIdentity",
            models=(model, other), call=lambda: ot.prune(other, plan),
        )  # fmt: skip

    def test_for_a_model_of_other_sizes_names_the_tensor(self) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
        wider = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 2, 1))
        shrink(model, {"1": [0]})
        plan = ot.plan(model, torch.zeros(1, 3, 8, 8))
        refused(
            PlanError, "expects 0.weight of shape (4, 3, 3, 3), which has shape (6, 3, 3, 3)",
            models=(model, wider), call=lambda: ot.prune(wider, plan),
        )  # fmt: skip

    def test_applied_a_second_time(self) -> None:
        model = make(Sequential)
        shrink(model, {"bn1": [0]})
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        refused(PlanError, "another model", models=(small,), call=lambda: ot.prune(small, plan))

    def test_for_a_model_that_selects_other_channels(self) -> None:
        small = {}
        for key, dropped in {"one": [0, 1], "other": [2, 3]}.items():
            model = make(TwoReaders)
            shrink(model, {"bn1": dropped})
            small[key] = ot.prune(model, ot.plan(model, model.example()))
        assert {key: tuple(tensor.shape) for key, tensor in small["one"].state_dict().items()} == {
            key: tuple(tensor.shape) for key, tensor in small["other"].state_dict().items()
        }
        plan = ot.plan(small["one"], TwoReaders.example())
        refused(
            PlanError, "selected differently",
            models=(small["other"],), call=lambda: ot.prune(small["other"], plan),
        )  # fmt: skip

    @pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", "{}", '{"format": 99}', '{"format": 1}', "\0"])
    def test_damaged(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_text(text)
        refused(PlanError, "plan.json", "plan", models=(), call=lambda: ot.PruningPlan.load(path))

    def test_of_bytes(self, tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_bytes(b"\x80\x04\xff")
        refused(PlanError, "plan.json", "plan.save(path)", models=(), call=lambda: ot.PruningPlan.load(path))

    def test_of_another_model_for_fold_constants(self) -> None:
        model, other = make(Sequential), make(ResidualIdentity)
        plan = ot.plan(model, model.example())
        small = ot.prune(model, plan)
        for call in (
            lambda: ot.fold_constants(small, other, plan),
            lambda: ot.fold_constants(model, model, plan),
            lambda: ot.fold_constants(small, model, ot.plan(other, other.example())),
        ):
            refused(PlanError, "the model that was planned", models=(model, other, small), call=call)
