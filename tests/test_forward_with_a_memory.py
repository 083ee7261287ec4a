"""Models whose forward keeps something on the model, or writes into it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.toy_nets import Toy, make
from tests.two_branches import net
from tests.unchanged import unchanged


def kept_on_the_model(m: Any, a: Tensor, b: Tensor) -> Tensor:
    if m.table is None:
        m.table = torch.arange(8, dtype=a.dtype, device=a.device)
    m.tables.setdefault("rows", m.table.view(8, 1))
    m.seen.append(a.shape)
    m.last = a
    found: Tensor = m.head(a * m.table + b * m.tables["rows"])
    return found


def test_what_a_forward_keeps_on_the_model_is_not_left_there() -> None:
    model = make(net(kept_on_the_model, table=lambda: None, tables=dict, seen=list, last=lambda: None))
    shrink(model, {"bn1": [0, 3], "bn2": [0, 3]})
    small = ot.prune(model, ot.plan(model, Toy.example(), MaskRule()))
    assert (model.table, model.tables, model.seen, model.last) == (None, {}, [], None)
    assert (small.table, small.tables, small.seen, small.last) == (None, {}, [], None)


def test_a_model_that_keeps_a_part_of_its_graph_can_be_pruned() -> None:
    model = make(net(kept_on_the_model, table=lambda: None, tables=dict, seen=list, last=lambda: None)).train()
    model(*Toy.example()).sum().backward()
    shrink(model, {"bn1": [0, 3], "bn2": [0, 3]})
    small = ot.prune(model, ot.plan(model, Toy.example(), MaskRule()))
    assert small.head.weight.shape[1] == 4 and small.last.is_leaf


def test_a_parameter_that_the_model_writes_into_is_left_as_it_was() -> None:
    def rest(m: Any, a: Tensor, b: Tensor) -> Tensor:
        if float(a.detach().mean()) < 1e9 and m.training:
            m.head.weight.data.mul_(0.5)
        found: Tensor = m.head(a) + m.other(b)
        return found

    model = make(net(rest))
    with unchanged(model):
        ot.trace(model, Toy.example())
