"""Batch norms that read some of a tensor's channels."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import otprune as ot
from tests.checking import check_model
from tests.net_layers import norm
from tests.pruned_toys import CASES, planned, pruned
from tests.random_nets import randomize
from tests.toy_nets import DepthwiseGate, NormalizedShortcut, TwoReaders, conv3, make
from tests.two_branches import net


class TestSelections:
    """A batch norm that selects goes on doing so, whatever is done to the model."""

    def small(self) -> tuple[nn.Module, Tensor]:
        _, small, plan = pruned(*CASES["selections"])
        assert plan.selections == {"bn1": [2, 3, 4, 5], "bn2": [0, 1, 4, 5]}
        return small, small(*TwoReaders.example())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_after_a_change_of_type(self, dtype: torch.dtype) -> None:
        small, expected = self.small()
        out = small.to(dtype)(TwoReaders.example()[0].to(dtype))
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), expected, rtol=0.1, atol=0.1)
        torch.testing.assert_close(small.double().to("cpu")(*TwoReaders.example()), expected, rtol=0.1, atol=0.1)

    def test_after_a_copy(self) -> None:
        small, expected = self.small()
        copied = copy.deepcopy(small)
        small.get_buffer("bn1.otprune_selection").zero_()
        assert torch.equal(copied(*TwoReaders.example()), expected)

    def test_after_a_round_trip_of_the_state_dict(self) -> None:
        small, expected = self.small()
        other = copy.deepcopy(small)
        randomize(other, seed=9)
        assert not torch.equal(other(*TwoReaders.example()), expected)
        assert other.load_state_dict(small.state_dict()).missing_keys == []
        assert torch.equal(other(*TwoReaders.example()), expected)

    def test_disappear_when_readers_agree_again(self) -> None:
        small, _ = self.small()
        plan = planned(small, TwoReaders.example(), {"bn1": [0, 1], "bn2": [0, 1]})
        smaller = ot.prune(small, plan)
        assert plan.selections == {}
        assert not any(module._forward_pre_hooks for module in smaller.modules())
        assert list(smaller.named_buffers()) == [(n, b) for n, b in smaller.named_buffers() if "selection" not in n]
        assert ot.verify(small, smaller, plan, TwoReaders.example()).relative < 1e-9

    def test_a_forward_pre_hook_of_the_users_still_runs_first(self) -> None:
        model = make(TwoReaders)
        seen: list[int] = []
        model.bn1.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[1]))
        small = ot.prune(model, planned(model, model.example(), CASES["selections"][1]))
        seen.clear()
        small(*model.example())
        assert seen == [6]


class TestZeros:
    """What is zero where a batch norm reads it goes, though the batch norm makes another constant of it."""

    @pytest.mark.parametrize("case", ["selections with zeros", "zeros for a shortcut"])
    def test_all_that_is_masked_goes(self, case: str) -> None:
        toy, mask = CASES[case]
        assert check_model(make(toy), toy.example(), mask).removed >= sum(map(len, mask.values()))

    def test_a_batch_norm_reads_zeros_where_a_channel_is_gone(self) -> None:
        _, small, plan = pruned(*CASES["zeros for a shortcut"])
        assert plan.selections == {"bn_of_input": [1, 2], "bn_of_block": [-1, 1]}
        assert small.get_buffer("bn_of_block.with_zeros_otprune_selection").tolist() == [0, 2]

    def test_zeros_are_put_in_for_more_channels_when_pruned_again(self) -> None:
        _, small, _ = pruned(*CASES["selections with zeros"])
        assert check_model(small, DepthwiseGate.example(), {"bn1": [0]}).removed == 1

    def test_a_batch_norm_that_is_left_alone_still_reads_them_when_pruned_again(self) -> None:
        _, small, plan = pruned(*CASES["selections with zeros"])
        again = planned(small, DepthwiseGate.example(), {"bn1": [0]}, ignore=["bn2"])
        assert again.selections == plan.selections
        assert ot.verify(small, ot.prune(small, again), again, DepthwiseGate.example()).relative < 1e-9

    def test_padding_of_the_batch_norms_own_is_something_else(self) -> None:
        class Padding(nn.BatchNorm2d):
            def forward(self, x: Tensor) -> Tensor:
                return F.pad(super().forward(x), (1, 1, 1, 1))

        class Net(DepthwiseGate):
            def __init__(self) -> None:
                super().__init__()
                self.bn2 = Padding(6)

        _, small, plan = pruned(Net, CASES["selections with zeros"][1])
        assert -1 in plan.selections["bn2"]
        assert check_model(small, Net.example(), {"bn1": [0]}).removed == 1

    def test_disappear_when_the_constant_is_not_needed_any_more(self) -> None:
        _, small, _ = pruned(*CASES["zeros for a shortcut"])
        plan = planned(small, NormalizedShortcut.example(), {"bn2": [0], "bn_of_block": [0]})
        smaller = ot.prune(small, plan)
        assert plan.selections == {"bn_of_input": [1, 2], "bn_of_block": [1]}
        assert not hasattr(smaller.get_submodule("bn_of_block"), "with_zeros_otprune_selection")
        assert ot.verify(small, smaller, plan, NormalizedShortcut.example()).relative < 1e-9


class ScaledInput(nn.BatchNorm2d):
    """A batch norm that reads something else than it is called on."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.scales = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * self.scales)


NOT_CALLED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "by keyword": lambda m, x: m.bn(input=x),
    "past its hooks": lambda m, x: m.bn.forward(x),
    "as a function": lambda m, x: F.batch_norm(x, m.bn.running_mean, m.bn.running_var, m.bn.weight, m.bn.bias),
    "on something else": lambda m, x: m.scaled(x),
}


@pytest.mark.parametrize("how", NOT_CALLED)
def test_a_batch_norm_that_no_hook_can_give_zeros_to_reads_what_it_read(how: str) -> None:
    toy = net(
        lambda m, a, b: m.padded(NOT_CALLED[how](m, a.relu()).sigmoid()) + m.other(b),
        bn=lambda: norm(2, 6), scaled=lambda: ScaledInput(6), padded=lambda: conv3(6, 4),
    )  # fmt: skip
    assert check_model(make(toy), toy.example(), {"bn1": [0, 3]}).removed == 0
