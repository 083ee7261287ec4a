"""A model that does not run on the example in training mode is looked at in evaluation mode, and the plan says so."""

import pytest
import torch
from torch import Tensor

import otprune as ot
from otprune.abstract import CONDITIONS, made_up
from otprune.errors import ExampleError, ModelError
from tests.checking import MaskRule, check_model, shrink
from tests.toys.detectors import Auxiliary, Choosing, Detector, Ignoring, Sorting, Stopping

MASK = {"body.1": [0, 3, 4], "norm": [1, 5]}


def images() -> tuple[list[Tensor]]:
    torch.manual_seed(0)
    return ([torch.randn(3, 8, 8, dtype=torch.float64) for _ in range(2)],)


@pytest.mark.parametrize("build", [Detector, Sorting])
def test_a_detector_without_targets_is_pruned_exactly(build: type[Detector]) -> None:
    torch.manual_seed(0)
    outcome = check_model(build().double(), images(), MASK)
    assert outcome.removed == 5 and outcome.informative


def test_the_plan_says_that_training_mode_was_not_looked_at() -> None:
    model = Detector().double()
    shrink(model, MASK)
    plan = ot.plan(model, images(), MaskRule())
    assert not plan.training and "targets should be passed (detectors.py" in plan.notes[0]
    assert ot.PruningPlan.from_json(plan.to_json()) == plan


def test_with_targets_the_same_detector_is_looked_at_in_both_modes() -> None:
    model = Detector().double()
    shrink(model, MASK)
    plan = ot.plan(model, (*images(), torch.zeros(2, 64, dtype=torch.float64)), MaskRule())
    assert plan.training and not plan.notes
    assert [len(layer.kept) for layer in plan.layers] == [5, 4]


def test_what_runs_in_neither_mode_is_refused_for_what_training_mode_says() -> None:
    with pytest.raises(ExampleError, match="training mode"):
        ot.plan(Detector(), (torch.zeros(2, 5, 8, 8),))


def test_a_head_that_only_training_runs_is_not_overlooked() -> None:
    """Its weights would keep their size while what they read shrinks."""
    with pytest.raises(ExampleError, match="targets should be passed"):
        ot.plan(Auxiliary().double(), images())


def test_what_chooses_channels_by_their_values_is_refused() -> None:
    with pytest.raises(ModelError, match=r"branches on its data at detectors\.py"):
        ot.plan(Choosing().double(), images())


def test_what_another_path_would_read_is_not_taken_for_unread() -> None:
    """What only the path not taken reads would be removed, or keep its size while its input shrinks."""
    with pytest.raises(ModelError, match=r"branches on its data at detectors\.py"):
        ot.plan(Ignoring().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64))
    with pytest.raises(ExampleError, match=r"not enough: it does not use second\.weight"):
        ot.plan(Stopping().double(), images())


def test_made_up_data_is_always_the_same() -> None:
    drawn = [made_up(torch.empty(5, device="meta")) for _ in range(2)]
    assert torch.equal(*drawn) and made_up(torch.empty(500, dtype=torch.bool, device="meta")).sum() == CONDITIONS
