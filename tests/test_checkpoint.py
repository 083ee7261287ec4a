"""Checkpoints: a pruned model comes back bit for bit, with its plan, precision and ties."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import CheckpointError
from tests.checking import MaskRule, shrink
from tests.comes_back import PRUNINGS, assert_same, pruned_by
from tests.net_layers import conv, norm
from tests.toy_nets import InPlace, Sequential, Toy, TwoReaders, conv3, make
from tests.unchanged import unchanged


@pytest.mark.parametrize("toy", PRUNINGS)
class TestPruned:
    def test_comes_back_bit_for_bit(self, toy: type[Toy], tmp_path: Path) -> None:
        small = pruned_by(make(toy), toy.example(), PRUNINGS[toy])
        with unchanged(small):
            ot.save(small, tmp_path / "small.safetensors")
        fresh = toy()
        with unchanged(fresh):
            loaded = ot.load(fresh, tmp_path / "small.safetensors")
        assert type(loaded) is toy
        assert_same(loaded, small, toy.example())

    def test_twice_comes_back_and_can_be_pruned_on(self, toy: type[Toy], tmp_path: Path) -> None:
        once = pruned_by(make(toy), toy.example(), PRUNINGS[toy])
        norms = {n: m for n, m in once.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
        twice = pruned_by(once, toy.example(), {n: [0] for n, m in norms.items() if m.num_features > 2})
        assert sum(p.numel() for p in twice.parameters()) < sum(p.numel() for p in once.parameters())
        ot.save(twice, tmp_path / "twice.safetensors")
        loaded = ot.load(toy(), tmp_path / "twice.safetensors")
        assert_same(loaded, twice, toy.example())
        plan = ot.plan(loaded, toy.example(), MaskRule())
        assert plan == ot.plan(twice, toy.example(), MaskRule())

    def test_plan_survives_json(self, toy: type[Toy], tmp_path: Path) -> None:
        model = make(toy)
        shrink(model, PRUNINGS[toy])
        plan = ot.plan(model, toy.example(), MaskRule())
        plan.save(tmp_path / "plan.json")
        read = ot.PruningPlan.load(tmp_path / "plan.json")
        assert read == plan
        assert str(read) == str(plan)
        assert_same(ot.prune(model, read), ot.prune(model, plan), toy.example())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_is_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    small = pruned_by(make(TwoReaders), TwoReaders.example(), PRUNINGS[TwoReaders]).to(dtype)
    ot.save(small, tmp_path / "small.safetensors")
    for fresh in (TwoReaders(), TwoReaders().double(), TwoReaders().to(dtype)):
        loaded = ot.load(fresh, tmp_path / "small.safetensors")
        assert_same(loaded, small, tuple(tensor.to(dtype) for tensor in TwoReaders.example()))
        assert all(p.requires_grad for p in loaded.parameters())


def test_mixed_precision_is_kept(tmp_path: Path) -> None:
    model = make(Sequential).bfloat16()
    model.bn1.float()
    ot.save(model, tmp_path / "model.safetensors")
    loaded = ot.load(Sequential(), tmp_path / "model.safetensors")
    assert {n: t.dtype for n, t in loaded.state_dict().items()} == {n: t.dtype for n, t in model.state_dict().items()}


def test_channels_last_weights_come_back(tmp_path: Path) -> None:
    small = pruned_by(make(Sequential), Sequential.example(), PRUNINGS[Sequential]).to(
        memory_format=torch.channels_last
    )
    ot.save(small, tmp_path / "small.safetensors")
    fresh = Sequential().to(memory_format=torch.channels_last)
    loaded = ot.load(fresh, tmp_path / "small.safetensors")
    assert_same(loaded, small, Sequential.example())
    assert loaded.get_parameter("conv2.weight").is_contiguous(memory_format=torch.channels_last)


def test_frozen_parameters_stay_frozen(tmp_path: Path) -> None:
    small = pruned_by(make(Sequential), Sequential.example(), {"bn1": [0]})
    ot.save(small, tmp_path / "small.safetensors")
    fresh = Sequential()
    fresh.conv1.requires_grad_(False)
    loaded = ot.load(fresh, tmp_path / "small.safetensors")
    assert {n for n, p in loaded.named_parameters() if not p.requires_grad} == {"conv1.weight"}


def test_a_loaded_model_trains(tmp_path: Path) -> None:
    small = pruned_by(make(InPlace), InPlace.example(), PRUNINGS[InPlace])
    ot.save(small, tmp_path / "small.safetensors")
    loaded = ot.load(InPlace(), tmp_path / "small.safetensors").train()
    before = copy.deepcopy(loaded.state_dict())
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1)
    loaded(*InPlace.example()).square().mean().backward()
    optimizer.step()
    assert all(not torch.equal(p, before[n]) for n, p in loaded.named_parameters())


class TiedHeads(Toy):
    """Two heads that are one parameter."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3(3, 6), norm(2, 6)
        self.head, self.other = conv(2, 6, 4), conv(2, 6, 4)
        if tied:
            self.other.weight = self.head.weight

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.head(x) + self.other(-x).sigmoid()


class TestTiedWeights:
    @pytest.mark.parametrize("mask", [{}, {"bn1": [0, 2]}])
    def test_stay_tied(self, mask: dict[str, list[int]], tmp_path: Path) -> None:
        model = make(TiedHeads)
        small = pruned_by(model, TiedHeads.example(), mask)
        assert small.get_parameter("other.weight") is small.get_parameter("head.weight")
        ot.save(small, tmp_path / "small.safetensors")
        loaded = ot.load(TiedHeads(), tmp_path / "small.safetensors")
        assert loaded.get_parameter("other.weight") is loaded.get_parameter("head.weight")
        assert_same(loaded, small, TiedHeads.example())

    def test_do_not_load_into_a_model_without_the_tie(self, tmp_path: Path) -> None:
        ot.save(make(TiedHeads), tmp_path / "model.safetensors")
        fresh = TiedHeads(tied=False)
        with unchanged(fresh), pytest.raises(CheckpointError, match=r"has no other\.weight"):
            ot.load(fresh, tmp_path / "model.safetensors")

    def test_load_from_an_ordinary_state_dict(self, tmp_path: Path) -> None:
        model = make(TiedHeads)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        assert_same(ot.load(TiedHeads(), tmp_path / "model.pt"), model, TiedHeads.example())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda weights: {"epoch": 3, "state_dict": weights, "optimizer": {"lr": 0.1}}, "has one in it: 'state_dict'"),
        (lambda weights: {"epoch": 3, "optimizer": {"lr": 0.1}}, r"\(names to tensors\)\. Save"),
        (lambda weights: list(weights.values()), r"\(names to tensors\)\. Save"),
    ],
    ids=["of a training program", "without weights", "a list"],
)
def test_what_is_no_state_dict_is_refused_and_one_inside_is_named(
    content: Callable[[dict[str, Tensor]], object], said: str, tmp_path: Path
) -> None:
    torch.save(content(nn.Linear(2, 2).state_dict()), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=said):
        ot.load(nn.Linear(2, 2), tmp_path / "model.pt")


def test_modules_are_told_their_version_whichever_way_they_were_saved(tmp_path: Path) -> None:
    """MNASNet asks for it when it is loaded."""
    mnasnet = pytest.importorskip("torchvision").models.mnasnet0_5
    model = mnasnet()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    ot.save(model, tmp_path / "model.safetensors")
    for name in ("model.pt", "model.safetensors"):
        torch.testing.assert_close(ot.load(mnasnet(), tmp_path / name).state_dict(), model.state_dict())
