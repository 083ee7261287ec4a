"""A teacher whose outputs are learned beside the labels."""

import copy
import math

import pytest
import torch
from torch import nn

from otprune.training.batch_loss import Teacher
from otprune.training.step import Optimization, Step
from tests.gpu import GPU
from tests.trained_steps import (
    BATCH,
    MEAN,
    STD,
    images,
    vgg,
)


def constant_logits(*logits: float) -> nn.Sequential:
    """A model whose outputs do not depend on the image."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, len(logits))).double()
    nn.init.zeros_(model[1].weight)
    model[1].bias.data = torch.tensor(logits, dtype=torch.float64)
    return model


def test_distillation_by_hand() -> None:
    """Divided by the temperature 2, the teacher's outputs say 1/5 and 4/5, the student's 1/4 and 3/4."""
    student, teacher = constant_logits(0, 2 * math.log(3)), constant_logits(0, 2 * math.log(4))
    weight, temperature, rate = 0.7, 2.0, 0.1
    none = Optimization(momentum=0.0, weight_decay=0.0)
    step = Step(student, torch.zeros(1), torch.ones(1), 1, none, Teacher(teacher, weight, temperature))
    step.begin(rate, lam=0.0)
    step.load(torch.zeros(1, 1, 1, 1, dtype=torch.uint8), torch.tensor([1]))
    step()
    hard = -math.log(9 / 10)  # at temperature 1, the student says 1/10 and 9/10
    soft = 1 / 5 * math.log(4 / 5) + 4 / 5 * math.log(16 / 15)
    assert step.sums().loss == pytest.approx((1 - weight) * hard + weight * temperature**2 * soft, rel=1e-12)
    slope = (1 - weight) * (1 / 10) + weight * temperature * (1 / 4 - 1 / 5)
    assert student[1].bias.tolist() == pytest.approx([-rate * slope, 2 * math.log(3) + rate * slope], rel=1e-12)
    assert teacher[1].bias.tolist() == [0, 2 * math.log(4)]


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_teacher_teaches_and_is_not_changed(device: str) -> None:
    teacher, drawn = vgg((5, 6, 7)).to(device), images(0)
    before = copy.deepcopy(teacher.state_dict())
    found = []
    for weight in (0.0, 0.9):
        step = Step(vgg().to(device), MEAN, STD, BATCH, teacher=Teacher(teacher.train(), weight))
        step.begin(rate=0.05, lam=0.0)
        step.load(drawn.pixels.to(device), drawn.labels.to(device))
        step()
        found.append(step.sums().loss)
    torch.testing.assert_close(teacher.state_dict(), before, rtol=0, atol=0)
    assert all(map(math.isfinite, found)) and found[0] != pytest.approx(found[1], rel=1e-2)
