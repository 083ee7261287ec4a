"""Sums and branches in models that change tensors in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor, nn

from tests.checking import check_model
from tests.net_layers import norm
from tests.pruned_toys import EVERYTHING
from tests.toy_nets import Toy, conv3, make
from tests.two_branches import Rest, multiplied_in_place, net, outcome, refusal


def in_place_on_the_operand(m: Any, a: Tensor, b: Tensor) -> Tensor:
    summed = a + b
    changed = m.relu(a)
    found: Tensor = m.head(summed) + m.other(changed)
    return found


def set_in_place(m: Any, a: Tensor, b: Tensor) -> Tensor:
    summed = a + b
    summed[:, :, 0] = 5
    return m.head(summed) + m.other(a)


@pytest.mark.parametrize("rest", [in_place_on_the_operand, multiplied_in_place, set_in_place])
def test_a_sum_and_the_operand_left_of_it_are_not_mixed_up(rest: Rest) -> None:
    model = make(net(rest, relu=lambda: nn.ReLU(inplace=True)))
    check_model(model, Toy.example(), {"bn2": EVERYTHING})


def test_branches_added_in_place_one_after_the_other_all_go() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        a += b
        a += m.bn3(m.conv3(a.relu()))
        return m.head(F.relu_(a))

    toy = net(rest, conv3=lambda: conv3(6, 6), bn3=lambda: norm(2, 6))
    assert outcome(toy, {"bn2": EVERYTHING, "bn3": EVERYTHING}).removed == 12


def test_an_in_place_module_whose_result_is_ignored_is_refused() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        summed = a + b
        m.relu(summed)
        return m.head(summed)

    message = refusal(net(rest, relu=lambda: nn.ReLU(inplace=True)), {"bn2": EVERYTHING})
    assert "layer relu" in message and "x = self.relu(x)" in message


def test_an_in_place_module_whose_reader_went_with_a_branch_is_none_of_those() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = m.head(a + b) + m.other(a + b * m.relu(a + b))
        return found

    assert outcome(net(rest, relu=lambda: nn.ReLU(inplace=False)), {"bn2": EVERYTHING}).removed == 6
    check_model(make(net(rest, relu=lambda: nn.ReLU(inplace=True))), Toy.example(), {"bn2": EVERYTHING})
