"""The pruned model beside its original: nothing is shared, nothing is lost that was not cut."""

import torch

import otprune as ot
from tests.checking import MaskRule, shrink
from tests.pruned_toys import CASES, any_case, drawn, planned, pruned
from tests.toy_nets import Sequential, make
from tests.unchanged import unchanged


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

    def test_a_pruned_model_of_a_pruned_model(self) -> None:
        for case, (toy, mask) in CASES.items():
            _, small, _ = pruned(toy, mask)
            plan = planned(small, toy.example(), drawn(small, 0.3, seed=3))
            smaller = ot.prune(small, plan)
            assert ot.verify(small, smaller, plan, toy.example()).relative < 1e-9, case
