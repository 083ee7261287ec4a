"""The label machine on one small network a pattern: what goes, what stays and why, always exactly."""

import random

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from tests.checking import Outcome, check_model
from tests.net_scene import gammas
from tests.toy_nets import TOYS, Toy, make, values

# What cannot go although every batch norm agrees, and why.
STAYS = {
    "SumWithBareConv": "the sum's other operand has no batch norm",
    "Slice": "positions are fixed by the code",
    "ConstantAdded": "a constant that the padded convolution after it cannot take",
    "ChannelMean": "the number of channels counts",
    "ChannelMax": "a zero can be the largest",
    "ChannelSoftmax": "the number of channels counts",
    "UnknownOperator": "no rule",
}
EQUAL_PIECES = {"Chunk", "Split", "RememberedSplit", "Shuffle", "Glu", "Grouped", "DepthwiseMultiplier"}
EQUAL_PIECES |= {"RememberedSizes"}  # none of which may be empty
OUTPUTS = {"TupleOutputs", "DictOutputs", "NormIsOutput", "AuxiliaryHead"}


def mask_of(model: nn.Module, seed: int, agree: bool) -> dict[str, list[int]]:
    """About half of each batch norm's channels; the same ones for all of equal width, or drawn for each."""
    mask = {}
    for name, count in gammas(model).items():
        rng = random.Random(f"{seed} {count if agree else name}")
        mask[name] = sorted(rng.sample(range(count), rng.randint(1, max(1, count - 2))))
    return mask


def outcome(toy: type[Toy], seed: int, agree: bool) -> Outcome:
    model = make(toy)
    return check_model(model, toy.example(), mask_of(model, seed, agree))


@pytest.mark.parametrize("agree", [True, False], ids=["agreeing", "independent"])
@pytest.mark.parametrize("name", TOYS)
def test_pruned_is_masked(name: str, agree: bool) -> None:
    outcomes = [outcome(TOYS[name], seed, agree) for seed in range(3)]
    assert any(seen.informative for seen in outcomes)


@pytest.mark.parametrize("name", sorted(set(TOYS) - set(STAYS) - EQUAL_PIECES - OUTPUTS))
def test_what_agrees_goes_for_real(name: str) -> None:
    for seed in range(3):
        seen = outcome(TOYS[name], seed, agree=True)
        assert seen.removed >= seen.masked > 0


@pytest.mark.parametrize("name", STAYS)
def test_what_must_stay_stays(name: str) -> None:
    assert outcome(TOYS[name], 0, agree=True).removed == 0


@pytest.mark.parametrize("name", sorted(EQUAL_PIECES))
def test_pieces_lose_equally_many(name: str) -> None:
    model = make(TOYS[name])
    mask = {layer: list(range(0, count, 2)) for layer, count in gammas(model).items()}
    assert check_model(model, TOYS[name].example(), mask).removed > 0


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("Slice", "aten.slice"),
        ("ChannelMean", "aten.mean"),
        ("ChannelSoftmax", "softmax"),
        ("UnknownOperator", "cumsum"),
    ],
)
def test_what_is_frozen_is_listed_with_the_operator_and_the_line(name: str, operator: str) -> None:
    text = str(ot.trace(make(TOYS[name]), TOYS[name].example()))
    assert operator in text and f"{TOYS[name].__module__.rpartition('.')[2]}.py:" in text


class OneNorm(nn.Module):
    """A convolution, a batch norm and a head; what happens between them is each test's own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1)


def test_a_tensor_of_another_rank_is_told_from_a_channel() -> None:
    class Net(OneNorm):
        def forward(self, x: Tensor) -> Tensor:
            y = self.bn(self.conv(x)).relu()
            return self.head(y * torch.linspace(0, 1, y.shape[-1], dtype=y.dtype))  # along the width: no channel

    model = Net().double().eval()
    seen = check_model(model, values(1, 3, 8, 8), {"bn": [0, 3]})
    assert seen.removed == 2


def test_a_tensor_with_the_channels_number_freezes_them() -> None:
    class Net(OneNorm):
        def forward(self, x: Tensor) -> Tensor:
            y = self.bn(self.conv(x)).relu()
            return self.head(y * torch.linspace(0, 1, 8, dtype=y.dtype).view(8, 1, 1))

    model = Net().double().eval()
    seen = check_model(model, values(1, 3, 8, 8), {"bn": [0, 3]})
    assert seen.removed == 0 and any("has no channels" in reason for reason in seen.reasons)


def test_in_place_writing_through_a_view_is_not_guessed_at() -> None:
    class Net(OneNorm):
        def forward(self, x: Tensor) -> Tensor:
            y = self.bn(self.conv(x))
            y.flatten(1).sigmoid_()
            return self.head(y)

    model = Net().double().eval()
    seen = check_model(model, values(1, 3, 8, 8), {"bn": [0, 3]})
    assert seen.removed == 0 and any("view" in reason for reason in seen.reasons)


def test_a_model_that_looks_at_its_data_is_run_on_it() -> None:
    class Net(OneNorm):
        def forward(self, x: Tensor) -> Tensor:
            scale = float(x.abs().max())
            return self.head(self.bn(self.conv(x / scale)).relu())

    model = Net().double().train()
    before = model.bn.running_mean.clone()
    assert check_model(model, values(1, 3, 8, 8), {"bn": [0, 3]}).removed == 2
    assert torch.equal(model.bn.running_mean, before)
