"""The numbers that a model calculates with are compared wherever it was planned, and wherever it is pruned."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import fx, nn

import otprune as ot
from otprune.errors import VerificationError
from otprune.location import code_running

EXAMPLE = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, images):
        features = self.bn(self.conv(images))
        return self.head(features.clamp(0, 6).sum((2, 3))) * {number}
"""


def some_channels_gone(model: nn.Module, norm: str) -> nn.Module:
    batch_norm = model.get_submodule(norm)
    batch_norm.get_parameter("weight").data[:3] = 0
    return model.double()


def row(activation: nn.Module) -> nn.Module:
    """Nothing but torch's own modules: none of the user's lines runs inside of it."""
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), activation, nn.Conv2d(8, 4, 1))
    return some_channels_gone(layers, "1")


@pytest.mark.parametrize("activation", [nn.ReLU6(), nn.ELU(), nn.Softplus(), nn.Hardtanh(-2, 3)], ids=repr)
@pytest.mark.parametrize("made", [lambda model: model, fx.symbolic_trace], ids=["modules", "graph"])
def test_a_model_of_torchs_own_modules_is_planned_on_one_line_and_pruned_on_another(
    activation: nn.Module, made: Callable[[nn.Module], nn.Module]
) -> None:
    model = made(row(activation))
    plan = ot.plan(model, EXAMPLE)
    small = ot.prune(model, plan)
    assert small.get_submodule("0").out_channels == 5
    assert ot.verify(model, small, plan, EXAMPLE).relative < 1e-9


def defined(path: Path, content: str) -> nn.Module:
    path.write_text(content)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: nn.Module = module.Net()
    return some_channels_gone(model, "bn")


def test_a_plan_fits_after_lines_were_added_above_the_model(tmp_path: Path) -> None:
    plan = ot.plan(defined(tmp_path / "before.py", MODEL.format(number="0.5")), EXAMPLE)
    read_back = ot.PruningPlan.from_json(plan.to_json())
    moved = defined(tmp_path / "after.py", "# A line,\n# and another.\n" + MODEL.format(number="0.5"))
    assert ot.prune(moved, read_back).get_submodule("conv").out_channels == 5


def test_a_plan_does_not_fit_after_a_number_was_changed(tmp_path: Path) -> None:
    plan = ot.plan(defined(tmp_path / "before.py", MODEL.format(number="0.5")), EXAMPLE)
    changed = defined(tmp_path / "after.py", MODEL.format(number="0.25"))
    with pytest.raises(
        VerificationError, match=r"calculates with 0\.25 in aten\.mul\.\w+ in Net\.forward.*after\.py:12"
    ):
        ot.prune(changed, plan)


def test_a_plan_for_other_lines_says_to_plan_again(tmp_path: Path) -> None:
    plan = ot.plan(defined(tmp_path / "before.py", MODEL.format(number="0.5")), EXAMPLE)
    more = MODEL.format(number="0.5").replace("        features =", "        images = images + 0\n        features =")
    with pytest.raises(VerificationError, match=r"where the original did not: .* plan again"):
        ot.prune(defined(tmp_path / "after.py", more), plan)


def test_places_are_the_same_whether_a_comprehension_is_a_function_or_not() -> None:
    """It is one in Python 3.11, and none in 3.12."""
    places = [code_running() for _ in range(1)]
    function = "test_places_are_the_same_whether_a_comprehension_is_a_function_or_not"
    assert places == [f"{function}+2"]


class TakesAModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, model: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.conv(model)
        return scores


def test_arguments_may_have_any_name() -> None:
    assert ot.cost(TakesAModel(), {"model": torch.zeros(1, 3, 2, 2)}).parameters == 16
