"""Limits of a plan: layers to ignore, the largest share to lose, counts to round to."""

import fnmatch
import math
from typing import Any

import pytest
import torch
from torch import nn

import otprune as ot
from otprune import models
from otprune.errors import PlanError
from tests.checking import MaskRule, shrink
from tests.pruned_toys import EVERYTHING, Mask, drawn, norms, planned
from tests.random_nets import randomize
from tests.refusals import busy, refused
from tests.toy_nets import ResidualIdentity, Sequential, Toy, make

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
        assert plan.layers[0].note == "1 negligible, needed elsewhere or for round_to=3"


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"ignore": "bn1"}, 'ignore=["bn1"]'),
        ({"ignore": ["bn7"]}, "'bn7', which is no layer"),
        ({"round_to": 0}, "round_to is 0"),
        ({"max_ratio": 1.5}, "max_ratio is 1.5"),
        ({"max_ratio": -0.5}, "max_ratio is -0.5"),
        ({"max_ratio": math.nan}, "max_ratio is nan"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: Any, word: str) -> None:
    model = busy(make(Sequential))
    refused(PlanError, word, models=(model,), call=lambda: ot.plan(model, Sequential.example(), **limits))
