"""Pruned models under torch.compile and torch.export."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tests.pruned_toys import CASES, any_case, pruned


def outputs(run: Callable[..., Any], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with torch.no_grad():
        return pytree.tree_leaves(run(*inputs))


class TestCompilers:
    """A pruned model is an ordinary module to them, selections and removed branches included."""

    @any_case
    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    def test_torch_compile(self, case: str, backend: str) -> None:
        model, small, _ = pruned(*CASES[case])
        torch.compiler.reset()
        compiled = torch.compile(small, backend=backend, fullgraph=True)
        for inputs in (model.example(), tuple(tensor * 2 for tensor in model.example())):
            assert all(map(torch.equal, outputs(compiled, inputs), outputs(small, inputs)))

    @any_case
    @pytest.mark.parametrize("strict", [False, True])
    def test_torch_export(self, case: str, strict: bool) -> None:
        model, small, _ = pruned(*CASES[case])
        torch.compiler.reset()
        exported = torch.export.export(small, model.example(), strict=strict).module()
        inputs = tuple(tensor * 2 for tensor in model.example())
        assert all(map(torch.equal, outputs(exported, inputs), outputs(small, inputs)))

    def test_training_a_compiled_model(self) -> None:
        model, small, _ = pruned(*CASES["branch before in-place ReLU"])
        torch.compiler.reset()
        compiled = torch.compile(copy.deepcopy(small).train(), backend="aot_eager")
        for net in (small.train(), compiled):
            net(*model.example()).square().mean().backward()
        for (name, parameter), other in zip(small.named_parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, other.grad, msg=name)
