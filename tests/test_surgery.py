"""Surgery: the same model, smaller; the original as it was; nothing left of what was taken out."""

import copy
import fnmatch
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import otprune as ot
from otprune import models
from otprune.errors import PlanError
from otprune.surgery import Indices, cut_tensor
from otprune.verify import masked_parameters
from tests.checking import MaskRule, shrink
from tests.net_layers import Layer, activation, conv, norm
from tests.random_nets import randomize
from tests.toy_nets import (
    TOYS,
    Dense,
    Depthwise,
    Grouped,
    InPlace,
    PreActivation,
    ResidualBranches,
    ResidualIdentity,
    Sequential,
    Toy,
    TwoReaders,
    conv3,
    make,
)
from tests.unchanged import unchanged

EVERYTHING = list(range(6))
Mask = dict[str, list[int]]


def norms(model: nn.Module) -> dict[str, Any]:
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.affine}


def drawn(model: nn.Module, share: float, seed: int = 0) -> Mask:
    generator = torch.Generator().manual_seed(seed)
    draws = {name: torch.rand(m.num_features, generator=generator) < share for name, m in norms(model).items()}
    return {name: draw.nonzero().flatten().tolist() for name, draw in draws.items()}


def planned(model: nn.Module, inputs: Any, mask: Mask, **limits: Any) -> ot.PruningPlan:
    shrink(model, mask)
    return ot.plan(model, inputs, MaskRule(), **limits)


def pruned(toy: type[Toy], mask: Mask) -> tuple[Toy, nn.Module, ot.PruningPlan]:
    model = make(toy)
    plan = planned(model, toy.example(), mask)
    return model, ot.prune(model, plan), plan


# What surgery does beside cutting: selections, removed branches, ReLUs taken out of place, fewer groups.
CASES: dict[str, tuple[type[Toy], Mask]] = {
    "cut": (Sequential, {"bn1": [0, 3], "bn2": [1]}),
    "groups": (Grouped, {"bn1": [0, 1], "bn2": [0, 1, 2]}),
    "depthwise": (Depthwise, {"bn1": [2], "bn2": [2]}),
    "selections": (TwoReaders, {"bn1": [0, 1], "bn2": [2, 3]}),
    "selections of a residual stream": (PreActivation, {"bn1": [0, 1, 2], "bn2": [5], "bn_final": [3]}),
    "selections of a concatenation": (Dense, {"bn1": [0], "bn2": [1, 5], "bn_final": [1, 2, 8]}),
    "branch": (ResidualIdentity, {"bn1": [0], "bn3": EVERYTHING}),
    "two branches": (ResidualBranches, {"bn2": EVERYTHING, "bn3": EVERYTHING}),
    "branch before in-place ReLU": (InPlace, {"bn1": [4], "bn2": EVERYTHING}),
}
any_case = pytest.mark.parametrize("case", CASES)


class TestOriginal:
    @any_case
    def test_is_untouched(self, case: str) -> None:
        toy, mask = CASES[case]
        model = make(toy).train()
        model.bn1.eval()
        model.register_buffer("extra", torch.ones(3), persistent=False)
        model.bn1.register_forward_hook(lambda module, inputs, out: None)
        model.conv1.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
        model(*toy.example()).square().mean().backward()
        shrink(model, mask)
        with unchanged(model):
            small = ot.prune(model, ot.plan(model, toy.example(), MaskRule()))
        assert all(parameter.grad is None for parameter in small.parameters())

    @any_case
    def test_shares_no_memory_with_the_result(self, case: str) -> None:
        model, small, _ = pruned(*CASES[case])
        with unchanged(model), torch.no_grad():
            for tensor in [*small.parameters(), *small.buffers()]:
                tensor.fill_(7)
            for module in small.modules():
                module.training = True

    def test_hooks_go_along(self) -> None:
        model = make(Sequential)
        seen: list[torch.Size] = []
        model.bn1.register_forward_hook(lambda module, inputs, out: seen.append(out.shape))
        plan = planned(model, model.example(), {"bn1": [0, 1]})
        small = ot.prune(model, plan)
        seen.clear()
        small(*model.example())
        assert seen == [(2, 4, 8, 8)]

    def test_modes_and_frozen_parameters_go_along(self) -> None:
        model = make(Sequential).train()
        model.bn2.eval()
        model.conv1.requires_grad_(False)
        small = ot.prune(model, planned(model, model.example(), {"bn1": [0]}))
        assert {n: m.training for n, m in small.named_modules()} == {n: m.training for n, m in model.named_modules()}
        assert {n for n, p in small.named_parameters() if not p.requires_grad} == {"conv1.weight"}

    def test_memory_format_goes_along(self) -> None:
        model = make(Sequential).to(memory_format=torch.channels_last)
        small = ot.prune(model, planned(model, model.example(), {"bn1": [0]}))
        assert small.get_parameter("conv2.weight").is_contiguous(memory_format=torch.channels_last)

    def test_nothing_to_prune_gives_an_equal_model(self) -> None:
        model = make(Sequential)
        small = ot.prune(model, ot.plan(model, model.example(), MaskRule()))
        assert small is not model
        assert torch.equal(small(*model.example()), model(*model.example()))


class TestSameModel:
    @any_case
    def test_classes_names_and_keys_stay(self, case: str) -> None:
        model, small, plan = pruned(*CASES[case])
        gone = set(plan.removed)
        assert type(small) is type(model)
        assert [n for n, _ in small.named_modules()] == [n for n, _ in model.named_modules()]
        for name, module in model.named_modules():
            assert name in gone or type(small.get_submodule(name)) is type(module)
        kept = [key for key in model.state_dict() if key.rpartition(".")[0] not in gone]
        assert list(small.state_dict()) == kept

    @pytest.mark.parametrize("share", [0.3, 0.7])
    @pytest.mark.parametrize("name", TOYS)
    def test_layers_know_their_sizes(self, name: str, share: float) -> None:
        model = make(TOYS[name])
        small = ot.prune(model, planned(model, TOYS[name].example(), drawn(model, share)))
        for module in small.modules():
            if isinstance(module, nn.modules.conv._ConvTransposeNd):
                assert module.weight.shape[:2] == (module.in_channels, module.out_channels // module.groups)
            elif isinstance(module, nn.modules.conv._ConvNd):
                assert module.weight.shape[:2] == (module.out_channels, module.in_channels // module.groups)
                assert module.in_channels % module.groups == module.out_channels % module.groups == 0
            elif isinstance(module, nn.Linear):
                assert module.weight.shape == (module.out_features, module.in_features)
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                sizes = {module.num_features, len(module.running_mean), len(module.running_var)}
                assert sizes == {len(module.weight) if module.affine else module.num_features}
                assert module.num_features > 0

    def test_groups_go_as_a_whole(self) -> None:
        _, small, _ = pruned(*CASES["groups"])
        grouped = small.get_submodule("grouped")
        assert (grouped.groups, grouped.in_channels, grouped.out_channels) == (2, 4, 6)
        _, small, _ = pruned(*CASES["depthwise"])
        depthwise = small.get_submodule("depthwise")
        assert (depthwise.groups, depthwise.in_channels, depthwise.out_channels) == (5, 5, 5)

    @pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1)])
    def test_other_layers_with_a_number_of_features_know_it_too(self, shape: tuple[int, ...]) -> None:
        class Scale(Layer):
            def __init__(self) -> None:
                super().__init__()
                self.num_features = 6
                self.factors = nn.Parameter(torch.ones(shape))

            def forward(self, x: Tensor) -> Tensor:
                return x * self.factors

        class Scaled(Toy):
            def __init__(self) -> None:
                super().__init__()
                self.conv1, self.bn1, self.scale, self.head = conv3(3, 6), norm(2, 6), Scale(), conv(2, 6, 4)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.scale(self.bn1(self.conv1(x))))

        model, small, plan = pruned(Scaled, {"bn1": [1, 2]})
        assert small.scale.num_features == small.scale.factors.numel() == 4
        assert ot.verify(model, small, plan, Scaled.example()).relative < 1e-9

    def test_a_prelu_knows_its_size(self) -> None:
        class Parametric(Toy):
            def __init__(self) -> None:
                super().__init__()
                self.conv1, self.prelu, self.bn1 = conv3(3, 6), nn.PReLU(6), norm(2, 6)
                self.head = conv(2, 6, 4)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.bn1(self.prelu(self.conv1(x))))

        model, small, plan = pruned(Parametric, {"bn1": [1, 2]})
        assert small.prelu.num_parameters == small.prelu.weight.numel() == 4
        assert ot.verify(model, small, plan, Parametric.example()).relative < 1e-9

    def test_a_pruned_model_of_a_pruned_model(self) -> None:
        for case, (toy, mask) in CASES.items():
            _, small, _ = pruned(toy, mask)
            plan = planned(small, toy.example(), drawn(small, 0.3, seed=3))
            smaller = ot.prune(small, plan)
            assert ot.verify(small, smaller, plan, toy.example()).relative < 1e-9, case


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

    def test_stay_where_something_else_reads_them(self) -> None:
        class ReadTwice(ResidualIdentity):
            def forward(self, x: Tensor) -> Any:
                x = torch.relu(self.bn1(self.conv1(x)))
                branch = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(x)))))
                return self.head(torch.relu(branch + x)), branch

        model = make(ReadTwice)
        plan = planned(model, ReadTwice.example(), {"bn3": EVERYTHING})
        assert plan.removed == []
        assert ot.verify(model, ot.prune(model, plan), plan, ReadTwice.example()).relative < 1e-9


class TestTraining:
    @any_case
    def test_gradients_are_those_of_the_masked_original(self, case: str) -> None:
        """In train mode, with the batch's own statistics, on every tensor that is left."""
        model, small, plan = pruned(*CASES[case])
        inputs = type(model).example()
        with torch.no_grad():
            for name, masked in masked_parameters(model, plan).items():
                model.get_parameter(name).copy_(masked)
        for net in (model, small):
            net.train()
            net(*inputs).square().mean().backward()
        cuts = {cut.tensor: cut for cut in plan.cuts}
        compared = 0
        for name, parameter in small.named_parameters():
            expected = model.get_parameter(name).grad
            expected = cut_tensor(expected, cuts[name], Indices()) if name in cuts else expected
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-7, atol=1e-12)
            compared += parameter.numel()
        assert compared

    def test_with_removed_branches_and_in_place_relu(self) -> None:
        class TwoBlocks(Toy):
            """The first block's output is read by the second block's sum after its in-place ReLU."""

            def __init__(self) -> None:
                super().__init__()
                self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
                self.conv2, self.bn2 = conv3(6, 6), norm(2, 6)
                self.conv3, self.bn3 = conv3(6, 6), norm(2, 6)
                self.relu, self.head = activation("relu_inplace"), conv(2, 6, 4)

            def forward(self, x: Tensor) -> Tensor:
                x = self.bn1(self.conv1(x))
                y = self.relu(self.bn2(self.conv2(x)) + x)
                return self.head(self.relu(self.bn3(self.conv3(y)) + x))

        model, small, plan = pruned(TwoBlocks, {"bn1": [0], "bn2": EVERYTHING})
        assert "bn2" in plan.removed
        assert ot.verify(model, small, plan, TwoBlocks.example()).relative < 1e-9
        before = copy.deepcopy(small.state_dict())
        optimizer = torch.optim.SGD(small.parameters(), lr=0.1)
        ot.L1Penalty(small, lam=1e-3).attach(optimizer)
        small.train()(*TwoBlocks.example()).square().mean().backward()
        optimizer.step()
        assert all(not torch.equal(parameter, before[name]) for name, parameter in small.named_parameters())

    def test_a_pruned_real_network_learns(self) -> None:
        torch.manual_seed(0)
        model = models.digits_net(num_classes=2)
        example = torch.randn(16, 1, 8, 8)
        model.get_parameter("blocks.1.bn2.weight").data.zero_()
        small = ot.prune(model, planned(model, example, {"bn": [0, 1], "blocks.0.bn1": [3]})).train()
        optimizer = torch.optim.SGD(small.parameters(), lr=0.1, momentum=0.9)
        targets = torch.arange(16) % 2
        for _ in range(15):
            optimizer.zero_grad()
            F.cross_entropy(small(example), targets).backward()
            optimizer.step()
        assert (small(example).argmax(1) == targets).all()


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


MASK: Mask = {"bn1": [0, 1, 2, 3], "bn2": [0, 1, 2, 3, 4]}


class TestLimits:
    def kept(self, toy: type[Toy], mask: Mask, **limits: Any) -> dict[str, int]:
        model = make(toy)
        plan = planned(model, toy.example(), mask, **limits)
        small = ot.prune(model, plan)
        assert ot.verify(model, small, plan, toy.example()).relative < 1e-9
        return {name: module.num_features for name, module in norms(small).items()}

    def test_without_any(self) -> None:
        assert self.kept(Sequential, MASK) == {"bn1": 2, "bn2": 3}

    @pytest.mark.parametrize(
        ("ignore", "kept"),
        [
            (["bn1"], {"bn1": 6, "bn2": 3}),
            (["conv1", "bn1"], {"bn1": 6, "bn2": 3}),
            (["*1"], {"bn1": 6, "bn2": 3}),
            (["conv1"], {"bn1": 2, "bn2": 3}),
            (["conv2"], {"bn1": 6, "bn2": 3}),
            (["conv1", "conv2", "bn1", "bn2"], {"bn1": 6, "bn2": 8}),
        ],
    )
    def test_ignored_layers_are_left_alone(self, ignore: list[str], kept: dict[str, int]) -> None:
        assert self.kept(Sequential, MASK, ignore=ignore) == kept
        model = make(Sequential)
        small = ot.prune(model, planned(model, model.example(), MASK, ignore=ignore))
        for name, tensor in model.state_dict().items():
            if any(fnmatch.fnmatch(name, f"{pattern}.*") for pattern in ignore):
                assert torch.equal(small.state_dict()[name], tensor), name

    def test_ignoring_a_parent_keeps_all_in_it(self) -> None:
        model = models.digits_net().double().eval()
        randomize(model, seed=0)
        plan = planned(model, torch.zeros(1, 1, 8, 8, dtype=torch.float64), drawn(model, 0.5), ignore=["blocks.2"])
        small = ot.prune(model, plan)
        for name, tensor in model.state_dict().items():
            if fnmatch.fnmatch(name, "blocks.2.*"):
                assert torch.equal(small.state_dict()[name], tensor), name
        assert small.get_parameter("blocks.0.bn1.weight").numel() < 32

    @pytest.mark.parametrize("ignore", [["bn3"], ["conv2"], ["bn2"]])
    def test_a_branch_with_an_ignored_layer_stays(self, ignore: list[str]) -> None:
        model = make(ResidualIdentity)
        plan = planned(model, model.example(), {"bn3": EVERYTHING}, ignore=ignore)
        assert plan.removed == []
        assert ot.verify(model, ot.prune(model, plan), plan, model.example()).relative < 1e-9

    @pytest.mark.parametrize("ratio", [0.0, 0.2, 0.25, 0.5, 0.99, 1.0])
    def test_no_layer_loses_more_than_the_largest_share(self, ratio: float) -> None:
        kept = self.kept(Sequential, MASK, max_ratio=ratio)
        assert kept["bn1"] >= 6 * (1 - ratio) and kept["bn2"] >= 8 * (1 - ratio)
        # Not one channel more than that stays.
        assert kept == {"bn1": max(2, 6 - int(6 * ratio)), "bn2": max(3, 8 - int(8 * ratio))}

    def test_a_largest_share_below_one_keeps_branches(self) -> None:
        mask = {"bn1": [0], "bn3": EVERYTHING}
        assert self.kept(ResidualIdentity, mask, max_ratio=0.5)["bn3"] >= 3
        assert "bn3" not in self.kept(ResidualIdentity, mask)

    @pytest.mark.parametrize("multiple", [2, 4, 5, 8, 100])
    def test_counts_are_rounded_up(self, multiple: int) -> None:
        kept = self.kept(Sequential, MASK, round_to=multiple)
        rounded = {"bn1": -(-2 // multiple) * multiple, "bn2": -(-3 // multiple) * multiple}
        assert kept == {"bn1": min(6, rounded["bn1"]), "bn2": min(8, rounded["bn2"])}

    @pytest.mark.parametrize("name", ["digits_net", "preresnet50", "densenet121", "vgg14"])
    def test_counts_of_real_networks_are_rounded_up(self, name: str) -> None:
        if name == "densenet121":
            pytest.importorskip("torchvision")
        model = models.build(name, num_classes=10)
        example = torch.zeros(1, 1, 8, 8) if name == "digits_net" else torch.zeros(1, 3, 32, 32)
        small = ot.prune(model, planned(model, example, drawn(model, 0.6), round_to=8))
        layers = [m for m in small.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
        widths = [m.out_channels if isinstance(m, nn.Conv2d) else m.num_features for m in layers]
        assert all(width % 8 == 0 for width in widths)
        assert sum(p.numel() for p in small.parameters()) < 0.7 * sum(p.numel() for p in model.parameters())

    def test_the_channels_that_stay_are_the_most_important(self) -> None:
        model = make(Sequential)
        shrink(model, MASK)
        model.get_parameter("bn1.weight").data[2] = 9e-7
        plan = ot.plan(model, model.example(), MaskRule(), round_to=3)
        assert plan.layers[0].kept == [2, 4, 5]


# What may happen to a channel that is masked and then constant, but not zero: one half.
GOES: dict[str, Callable[[Tensor], Tensor]] = {
    "where": lambda y: torch.where(y > 0.3, y, y * 2),
    "where both": lambda y: torch.where((y > 0.3) & ~(y > 0.6), y, y * 2),
    "masked_fill": lambda y: y.masked_fill(y > 0.3, 3.0) + y,
    "product with a truth value": lambda y: (y > 0.3) * y,
    "cut off to integers": lambda y: (y * 3).int() * 1.5 + y,
    "bits": lambda y: (y * 5).int().bitwise_and(1) + y,
    "cast to truth values": lambda y: (y - 0.5).bool() * 0.7 + y,
    "rounded to half precision": lambda y: F.softplus(y).half().double(),
    "average": lambda y: F.avg_pool2d(y, 2),
    "average, rounded up": lambda y: F.avg_pool2d(y, 3, 2, ceil_mode=True),
    "maximum, padded": lambda y: F.max_pool2d(y, 3, 1, 1),
    "reflected": lambda y: F.pad(y, (1, 1, 1, 1), mode="reflect"),
    "bicubic": lambda y: F.interpolate(y, scale_factor=2, mode="bicubic"),
}
# Here it is no longer constant, or its constant is not known.
STAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "average, padded": lambda y: F.avg_pool2d(y, 3, 1, 1),
    "average in 3-d, padded": lambda y: F.avg_pool3d(y.unsqueeze(2), (1, 3, 3), 1, (0, 1, 1)).squeeze(2),
    "average with a divisor": lambda y: F.avg_pool2d(y, 2, divisor_override=3),
    "padded with zeros": lambda y: F.pad(y, (1, 1)),
    "padded with a number": lambda y: F.pad(y, (1, 1), value=0.7),
    "times the position": lambda y: y * torch.arange(8.0, dtype=y.dtype),
    "softmax over positions": lambda y: y.softmax(2),
    "sum over positions": lambda y: y.sum((2, 3), keepdim=True),
    "cumulative sum": lambda y: y.cumsum(2),
}


@pytest.mark.parametrize("kind", [*GOES, *STAYS])
def test_constants_are_followed_by_the_operators_themselves(kind: str) -> None:
    class Halves(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.head = conv3(3, 6), norm(2, 6), conv(2, 6, 4, bias=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.head((GOES | STAYS)[kind](torch.sigmoid(self.bn1(self.conv1(x)))))

    model, small, plan = pruned(Halves, {"bn1": [1, 4]})
    assert ot.verify(model, small, plan, Halves.example()).relative < 1e-9
    assert plan.layers[0].kept == ([0, 2, 3, 5] if kind in GOES else EVERYTHING)


@pytest.mark.parametrize(("groups", "kept"), [(2, 10), (3, 9), (4, 12), (6, 12)])
def test_a_shuffle_into_more_groups_than_channels_a_group_is_left_alone(groups: int, kept: int) -> None:
    class Shuffled(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.head = conv3(3, 12), norm(2, 12), conv(2, 12, 4)

        def forward(self, x: Tensor) -> Tensor:
            n, c, h, w = (x := self.bn1(self.conv1(x))).shape
            return self.head(x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w))

    model, small, plan = pruned(Shuffled, {"bn1": list(range(0, 12, 12 // groups))})
    assert len(plan.layers[0].kept) == kept
    assert any("groups" in reason for reason in plan.frozen) == (kept == 12)
    assert ot.verify(model, small, plan, Shuffled.example()).relative < 1e-9


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


class Constants(Toy):
    """A masked channel that comes out of a depthwise convolution as a constant, and goes into a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.depthwise, self.bn2 = conv(2, 6, 6, groups=6), norm(2, 6)
        self.head = conv(2, 6, 4, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn2(self.depthwise(torch.relu(self.bn1(self.conv1(x)))))))


class TestPlansOfModelsThatWereTrainedSince:
    def planned(self) -> tuple[Toy, ot.PruningPlan]:
        model = make(Constants)
        model.bn2.bias.data.abs_().add_(1)
        plan = planned(model, Constants.example(), {"bn1": [0, 3]})
        assert plan.folds and plan.layers[1].kept == [1, 2, 4, 5]
        return model, plan

    @pytest.mark.parametrize("name", ["bn2.weight", "bn2.bias", "bn2.running_mean", "bn2.running_var", "head.weight"])
    def test_are_refused_where_a_constant_has_changed(self, name: str) -> None:
        model, plan = self.planned()
        small = ot.prune(model, plan)
        model.state_dict()[name].add_(0.1)
        layer, tensor = name.split(".")
        for use in (lambda: ot.prune(model, plan), lambda: ot.fold_constants(small, model, plan)):
            with pytest.raises(PlanError, match=f"layer {layer}: its {tensor} has changed .* Make a new plan"):
                use()

    def test_are_refused_where_a_constant_was_zero_and_is_no_longer(self) -> None:
        model, _ = self.planned()
        model.bn2.bias.data[0] = model.bn2.running_mean[0] = 0
        model.bn2.bias.data[3] = model.bn2.running_mean[3] = 0
        plan = ot.plan(model, Constants.example(), MaskRule())
        assert plan.folds == []
        model.bn2.bias.data.add_(1)
        with pytest.raises(PlanError, match=r"layer bn2: its bias has changed"):
            ot.prune(model, plan)

    def test_are_exact_where_no_constant_has_changed(self) -> None:
        model, plan = self.planned()
        for name in ("conv1.weight", "bn1.weight", "bn1.running_mean", "depthwise.weight", "head.bias"):
            model.state_dict()[name].add_(0.1)
        again = ot.PruningPlan.from_json(plan.to_json())
        assert ot.verify(model, ot.prune(model, again), again, Constants.example()).relative < 1e-9

    def test_are_exact_whatever_changed_where_there_is_no_constant(self) -> None:
        model = make(Sequential)
        plan = planned(model, Sequential.example(), {"bn1": [0, 1], "bn2": [2]})
        randomize(model, seed=7)
        assert plan.sources == {}
        assert ot.verify(model, ot.prune(model, plan), plan, Sequential.example()).relative < 1e-9
