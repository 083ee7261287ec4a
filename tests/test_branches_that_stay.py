"""Branches under the threshold that stay, and why the plan says they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.pruned_toys import EVERYTHING, planned
from tests.toy_nets import ResidualIdentity, Toy, make
from tests.two_branches import Rest, multiplied_in_place, net, outcome

THIS_FILE = Path(__file__).name


def test_branches_stay_where_something_else_reads_them() -> None:
    class ReadTwice(ResidualIdentity):
        def forward(self, x: Tensor) -> Any:
            x = torch.relu(self.bn1(self.conv1(x)))
            branch = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(x)))))
            return self.head(torch.relu(branch + x)), branch

    model = make(ReadTwice)
    plan = planned(model, ReadTwice.example(), {"bn3": EVERYTHING})
    assert plan.removed == []
    assert ot.verify(model, ot.prune(model, plan), plan, ReadTwice.example()).relative < 1e-9


ASKED: dict[str, Rest] = {
    "shape": lambda m, a, b: m.head(F.interpolate(a, size=b.shape[2:]) + b),
    "size": lambda m, a, b: m.head((2 * a).view(b.size(0), -1, 8, 8) + 3 * a) + m.other(a + b),
    "rank": lambda m, a, b: m.head(a.mean(b.dim() - 1, keepdim=True) + 3 * a) + m.other(a + b),
    "type": lambda m, a, b: m.head(a + b) if isinstance(b, Tensor) else m.other(a),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_branch_that_the_model_asks_about_stays(what: str) -> None:
    assert outcome(net(ASKED[what]), {"bn2": EVERYTHING}).removed == 0


STAYING: dict[str, tuple[Rest, str]] = {
    "shape": (ASKED["shape"], f"a branch that was pruned away has no shape ({THIS_FILE}:"),
    "size": (ASKED["size"], f"has no size ({THIS_FILE}:"),
    "type": (ASKED["type"], "does something else where it is gone"),
    "view": (lambda m, a, b: m.head(a + b.view(2, 6, 64).view(2, 6, 8, 8)), "a view"),
    "read": (lambda m, a, b: m.head(a + b) + m.other(b), "layer other reads it too"),
    "output": (lambda m, a, b: (m.head(a + b), b), "is an output of the model"),
    "made other than zero": (lambda m, a, b: m.head(a + b) + m.other(torch.cos(b)), "aten.cos.default reads it too"),
    "overwritten": (multiplied_in_place, "changed in place"),
    "in use elsewhere": (lambda m, a, b: m.head(m.bn2(a) + b), "runs several times"),
}


@pytest.mark.parametrize("what", STAYING)
def test_the_plan_says_why_a_branch_under_the_threshold_stays(what: str) -> None:
    rest, reason = STAYING[what]
    model = make(net(rest))
    shrink(model, {"bn2": EVERYTHING})
    plan = ot.plan(model, Toy.example(), MaskRule())
    note = {layer.name: layer.note for layer in plan.layers}["bn2"]
    assert plan.removed == [] and "the branch stays: " in note and reason in note
    assert note in str(plan)


def test_a_layer_under_the_threshold_that_is_no_branch_is_not_called_one() -> None:
    model = make(net(lambda m, a, b: m.head(a.relu()) + m.other(b.relu())))
    shrink(model, {"bn2": EVERYTHING})
    assert not any("branch" in layer.note for layer in ot.plan(model, Toy.example(), MaskRule()).layers)
