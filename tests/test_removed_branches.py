"""Branches whose last batch norm is masked go as a whole, and leave nothing behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import otprune as ot
from otprune import models
from tests.checking import MaskRule, shrink
from tests.net_layers import conv, norm
from tests.pruned_toys import CASES, EVERYTHING, pruned
from tests.random_nets import randomize
from tests.toy_nets import ResidualIdentity, Toy, conv3, make
from tests.two_branches import net, outcome


class Operators(TorchDispatchMode):
    """Counts the ATen operators that run, but for those that reserve memory."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func._schema.name.startswith("aten::empty"):
            self.counts[func._schema.name.removeprefix("aten::").rstrip("_")] += 1
        return func(*args, **(kwargs or {}))


def operators(model: nn.Module, inputs: tuple[Tensor, ...]) -> Counter[str]:
    with torch.no_grad(), Operators() as seen:
        model.eval()(*inputs)
    return seen.counts


class ActivatedNorm(nn.BatchNorm2d):
    """A batch norm that has its activation inside."""

    def __init__(self, channels: int, inplace: bool) -> None:
        super().__init__(channels)
        self.act = nn.ReLU(inplace)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(super().forward(x))
        return out


class TestRemovedBranches:
    def test_of_a_toy_leave_no_kernel_behind(self) -> None:
        model, small, _ = pruned(*CASES["branch"])
        gone = operators(model, model.example()) - operators(small, model.example())
        assert gone == {"convolution": 2, "native_batch_norm": 2, "relu": 1, "add": 1}
        assert not operators(small, model.example()) - operators(model, model.example())

    def test_of_a_sum_of_three_leave_the_identity(self) -> None:
        model, small, _ = pruned(*CASES["two branches"])
        gone = operators(model, model.example()) - operators(small, model.example())
        assert gone == {"convolution": 2, "native_batch_norm": 2, "add": 2}

    @pytest.mark.parametrize("inplace", [False, True])
    def test_may_end_in_a_batch_norm_with_its_activation_inside(self, inplace: bool) -> None:
        model = make(ResidualIdentity)
        model.bn3 = ActivatedNorm(6, inplace)
        randomize(model.double().eval(), seed=0)
        shrink(model, {"bn3": EVERYTHING})
        plan = ot.plan(model, model.example(), MaskRule())
        assert "bn3" in plan.removed
        assert ot.verify(model, ot.prune(model, plan), plan, model.example()).relative < 1e-9

    def test_of_a_real_network_leave_no_kernel_behind(self) -> None:
        model = models.resnet20().double().eval()
        randomize(model, seed=0)
        example = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        blocks = ["blocks.1", "blocks.4", "blocks.8"]
        for block in blocks:
            model.get_parameter(f"{block}.bn2.weight").data *= 1e-9
        plan = ot.plan(model, example, MaskRule())
        small = ot.prune(model, plan)
        layers = ("conv1", "bn1", "conv2", "bn2")
        assert set(plan.removed) == {f"{block}.{layer}" for block in blocks for layer in layers}
        gone = operators(model, (example,)) - operators(small, (example,))
        assert gone == {"convolution": 6, "native_batch_norm": 6, "relu": 3, "add": 3}
        assert ot.verify(model, small, plan, example).relative < 1e-9

    def test_of_a_module_with_two_names_go_under_both(self) -> None:
        class TwoNames(Toy):
            def __init__(self) -> None:
                super().__init__()
                self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
                self.conv2, self.bn2 = conv3(6, 6), norm(2, 6)
                self.branch = nn.Sequential(self.conv2, self.bn2)
                self.head = conv(2, 6, 4)

            def forward(self, x: Tensor) -> Tensor:
                x = torch.relu(self.bn1(self.conv1(x)))
                return self.head(x + self.branch(x))

        model, small, plan = pruned(TwoNames, {"bn2": EVERYTHING})
        assert plan.removed == ["conv2", "bn2"]
        assert operators(small, TwoNames.example())["convolution"] == 2
        assert not any("branch" in key or "2" in key for key in small.state_dict())
        assert ot.verify(model, small, plan, TwoNames.example()).relative < 1e-9

    @pytest.mark.parametrize("order", ["out += x", "x + out", "torch.add(out, x)", "out.add(x)"])
    def test_go_however_the_sum_is_written(self, order: str) -> None:
        class Summed(ResidualIdentity):
            def forward(self, x: Tensor) -> Tensor:
                x = torch.relu(self.bn1(self.conv1(x)))
                out = F.dropout(self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(x))))), 0.1, False)
                match order:
                    case "out += x":
                        out += x
                    case "x + out":
                        out = x + out
                    case "torch.add(out, x)":
                        out = torch.add(out, x)
                    case "out.add(x)":
                        out = out.add(x)
                return self.head(torch.relu(out))

        model, small, plan = pruned(Summed, {"bn3": EVERYTHING})
        assert plan.removed == ["conv2", "bn2", "conv3", "bn3"]
        assert ot.verify(model, small, plan, Summed.example()).relative < 1e-9

    def test_go_whatever_is_computed_on_the_way(self) -> None:
        class Arithmetic(ResidualIdentity):
            def forward(self, x: Tensor) -> Tensor:
                x = torch.relu(self.bn1(self.conv1(x)))
                out = self.bn2(self.conv2(x))
                out = 1 - abs(-out + 1) / 2 + (out * 2 - 1) ** 2 - 1 / (out.exp() + 1)
                out = out * F.adaptive_avg_pool2d(out, 1)
                return self.head(torch.relu(self.bn3(self.conv3(out)) + x))

        model, small, plan = pruned(Arithmetic, {"bn3": EVERYTHING})
        assert plan.removed == ["conv2", "bn2", "conv3", "bn3"]
        assert operators(small, Arithmetic.example()).keys() == {"convolution", "native_batch_norm", "relu"}
        assert ot.verify(model, small, plan, Arithmetic.example()).relative < 1e-9
        torch.compiler.reset()
        compiled = torch.compile(small, backend="eager", fullgraph=True)
        assert torch.equal(compiled(*Arithmetic.example()), small(*Arithmetic.example()))


def test_a_branch_that_goes_is_masked_even_if_a_gate_ties_it_to_what_stays() -> None:
    toy = net(lambda m, a, b: m.head(a * torch.sigmoid(b) + b * (1 - torch.sigmoid(b))))
    assert outcome(toy, {"bn1": EVERYTHING}).removed == 6


class NormAndInput(nn.BatchNorm2d):
    """A batch norm that adds what it reads."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x


def test_a_batch_norm_that_adds_its_input_stays() -> None:
    toy = net(lambda m, a, b: m.head(a + m.both(b)), both=lambda: NormAndInput(6))
    assert outcome(toy, {"both": EVERYTHING}).removed == 0


def test_a_sum_by_keyword_loses_a_branch() -> None:
    assert outcome(net(lambda m, a, b: m.head(torch.add(input=a, other=b))), {"bn2": EVERYTHING}).removed == 6


class DropPath(nn.Module):
    """Drops whole images of a branch in training, for which it asks how many there are."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype).round() * 2 if self.training else x


def test_noise_on_a_branch_goes_with_it() -> None:
    toy = net(lambda m, a, b: m.head(a + m.drop(x=b)), drop=DropPath)
    assert outcome(toy, {"bn2": EVERYTHING}).removed == 6


def test_noise_on_two_branches_stays_for_the_one_that_does() -> None:
    toy = net(lambda m, a, b: m.head(a + m.drop(b)) + m.other(m.drop(a)), drop=DropPath)
    model = make(toy)
    shrink(model, {"bn2": EVERYTHING})
    plan = ot.plan(model, toy.example(), MaskRule())
    assert plan.removed == []
    assert "has no shape" in {layer.name: layer.note for layer in plan.layers}["bn2"]
