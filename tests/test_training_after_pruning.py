"""A pruned model trains as the masked original would."""

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

import otprune as ot
from otprune import models
from otprune.surgery import Indices, cut_tensor
from otprune.verify import masked_parameters
from tests.net_layers import activation, conv, norm
from tests.pruned_toys import CASES, EVERYTHING, any_case, planned, pruned
from tests.toy_nets import Toy, conv3


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
