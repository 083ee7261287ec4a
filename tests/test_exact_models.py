"""The networks of the paper, pruned: exact at every sparsity, saved, loaded, trained on, pruned again."""

import copy
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune import models
from tests.checking import TOLERANCE, MaskRule, shrink
from tests.random_nets import randomize

# Small images: what is tested does not depend on their size, and float64 is slow.
IMAGES = {
    "vgg14": (3, 32, 32),
    "resnet20": (3, 16, 16),
    "resnet50": (3, 16, 16),
    "densenet121": (3, 16, 16),
    "preresnet50": (3, 64, 64),
    "digits_net": (1, 8, 8),
}
# The last batch norms of branches beside something that stays: blocks' own, and the projection where blocks end in
# a convolution.
BRANCH_ENDS = {
    "resnet20": r"blocks\.[0147]\.bn2",
    "resnet50": r"layer\d\.[12]\.bn3",
    "preresnet50": r"blocks\.[03]\.shortcut\.1",
    "digits_net": r"blocks\.[13]\.bn2",
}
# Its projections read what no batch norm has masked, so channels stay that all batch norms would drop.
READS_RAW = ("preresnet50",)
Mask = dict[str, list[int]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def untouched(name: str) -> nn.Module:
    """The network with batch norms far from the identity; built once, and never changed."""
    if name in ("resnet50", "densenet121"):
        pytest.importorskip("torchvision")
    model = models.build(name, num_classes=10).double().eval()
    randomize(model, seed=0)
    return model


def fresh(name: str) -> nn.Module:
    return copy.deepcopy(untouched(name))


def images(name: str, count: int = 2) -> Tensor:
    return torch.randn(count, *IMAGES[name], generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def batch_norms(model: nn.Module) -> dict[str, nn.BatchNorm2d]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}


def independent_draws(model: nn.Module, share: float, seed: int = 0) -> Mask:
    """Every batch norm drops channels of its own choice."""
    generator = torch.Generator().manual_seed(seed)
    draws = {name: torch.rand(norm.num_features, generator=generator) for name, norm in batch_norms(model).items()}
    return {name: (draw < share).nonzero().flatten().tolist() for name, draw in draws.items()}


def agreeing_draws(model: nn.Module, share: float, seed: int = 0) -> Mask:
    """Channels of the same number go everywhere: tied layers agree, and so do the layers of a dense block.

    One of every sixteen channels stays, so that no layer would be empty.
    """
    norms = batch_norms(model)
    widest = max(norm.num_features for norm in norms.values())
    dropped = torch.rand(widest, generator=torch.Generator().manual_seed(seed)) < share
    dropped[::16] = False
    return {name: dropped[: norm.num_features].nonzero().flatten().tolist() for name, norm in norms.items()}


def with_branches(model: nn.Module, mask: Mask, pattern: str) -> Mask:
    """The mask with whole batch norms in it."""
    ends = {name: list(range(n.num_features)) for name, n in batch_norms(model).items() if re.fullmatch(pattern, name)}
    assert ends
    return mask | ends


def pruned(model: nn.Module, example: Tensor, mask: Mask) -> tuple[nn.Module, ot.PruningPlan]:
    shrink(model, mask)
    plan = ot.plan(model, example, MaskRule())
    return ot.prune(model, plan), plan


def assert_exact(model: nn.Module, small: nn.Module, plan: ot.PruningPlan, example: Tensor) -> None:
    found = ot.verify(model, small, plan, example)
    assert found.relative <= TOLERANCE, str(found)
    assert found.first_layer is None


def train_one_step(model: nn.Module, example: Tensor) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    ot.L1Penalty(model, lam=1e-4).attach(optimizer)
    nn.functional.cross_entropy(model(example), torch.arange(len(example))).backward()
    optimizer.step()
    model.eval()


def assert_survives_a_file(small: nn.Module, name: str, path: Path) -> None:
    ot.save(small, path)
    loaded = ot.load(models.build(name, num_classes=10), path).eval()
    assert torch.equal(loaded(images(name)), small(images(name)))
    state = small.state_dict()
    assert list(loaded.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[key]) for key, tensor in loaded.state_dict().items())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9], ids=["light", "half", "heavy"])
@pytest.mark.parametrize("draws", [independent_draws, agreeing_draws])
@pytest.mark.parametrize("name", IMAGES)
def test_pruned_equals_masked(name: str, draws: Callable[[nn.Module, float], Mask], share: float) -> None:
    model, example = fresh(name), images(name)
    mask = draws(model, share)
    small, plan = pruned(model, example, mask)
    assert_exact(model, small, plan, example)
    if draws is agreeing_draws and name not in READS_RAW:
        # Nobody disagrees, so every masked channel goes and no batch norm has to select.
        assert plan.masked == {layer: channels for layer, channels in mask.items() if channels}
        assert plan.selections == {}
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", BRANCH_ENDS)
def test_whole_branches_go_exactly(name: str) -> None:
    model, example = fresh(name), images(name)
    mask = with_branches(model, agreeing_draws(model, 0.3), BRANCH_ENDS[name])
    small, plan = pruned(model, example, mask)
    assert_exact(model, small, plan, example)
    assert {layer for layer in mask if re.fullmatch(BRANCH_ENDS[name], layer)} <= set(plan.removed)
    assert not any(key.startswith(f"{layer}.") for key in small.state_dict() for layer in plan.removed)


@pytest.mark.parametrize("name", IMAGES)
def test_saved_loaded_trained_and_pruned_again(name: str, tmp_path: Path) -> None:
    model, example = fresh(name), images(name)
    mask = independent_draws(model, 0.5)
    if name in BRANCH_ENDS:
        mask = with_branches(model, mask, BRANCH_ENDS[name])
    small, plan = pruned(model, example, mask)
    assert_exact(model, small, plan, example)
    assert_survives_a_file(small, name, tmp_path / "once.safetensors")

    before = {key: tensor.clone() for key, tensor in small.named_parameters()}
    train_one_step(small, example)
    assert all(not torch.equal(tensor, before[key]) for key, tensor in small.named_parameters())

    smaller, second = pruned(small, example, independent_draws(small, 0.4, seed=1))
    assert_exact(small, smaller, second, example)
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in small.parameters())
    assert_survives_a_file(smaller, name, tmp_path / "twice.safetensors")
