"""Plans of models that were trained since: exact, or refused where a constant has changed."""

import pytest
import torch
from torch import Tensor

import otprune as ot
from otprune.errors import PlanError
from tests.checking import MaskRule
from tests.net_layers import conv, norm
from tests.pruned_toys import planned
from tests.random_nets import randomize
from tests.toy_nets import Sequential, Toy, conv3, make


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
