"""Norms that are no plain batch norm: those with scaling factors of a batch are pruned by them, the rest stay whole."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

import otprune as ot
from tests.checking import check_model

CHANNELS = 8
HALF = list(range(0, CHANNELS, 2))


def timm_norm() -> nn.Module:
    return pytest.importorskip("timm.layers").BatchNormAct2d(CHANNELS)


def between(norm: nn.Module) -> nn.Sequential:
    """A norm in the middle of a network, with a batch norm before its convolution and one after."""
    first = (nn.Conv2d(3, CHANNELS, 3), nn.BatchNorm2d(CHANNELS), nn.ReLU())
    middle = (nn.Conv2d(CHANNELS, CHANNELS, 3), norm, nn.ReLU())
    last = (nn.Conv2d(CHANNELS, CHANNELS, 3), nn.BatchNorm2d(CHANNELS), nn.Conv2d(CHANNELS, 4, 1))
    torch.manual_seed(0)
    model = nn.Sequential(*first, *middle, *last).double().eval()
    for tensor in (*model.parameters(), *norm.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.2, 1.0)
    return model


@pytest.mark.parametrize("make", [lambda: nn.SyncBatchNorm(CHANNELS), timm_norm], ids=["SyncBatchNorm", "timm's"])
def test_every_kind_of_batch_norm_is_pruned(make: Callable[[], nn.Module]) -> None:
    model = between(make())
    found = check_model(model, torch.rand(2, 3, 12, 12).double(), dict.fromkeys(("1", "4", "7"), HALF))
    assert found.removed == found.masked == 3 * len(HALF) and found.informative


@pytest.mark.parametrize(
    "norm",
    [
        FrozenBatchNorm2d(CHANNELS),
        nn.InstanceNorm2d(CHANNELS),
        nn.InstanceNorm2d(CHANNELS, affine=True),
        nn.InstanceNorm2d(CHANNELS, affine=True, track_running_stats=True),
        nn.GroupNorm(4, CHANNELS),
        nn.GroupNorm(CHANNELS, CHANNELS),
    ],
    ids=str,
)
def test_other_norms_are_passed_through_whole_and_what_is_around_them_is_pruned(norm: nn.Module) -> None:
    model, images = between(norm), torch.rand(2, 3, 12, 12).double()
    found = check_model(model, images, dict.fromkeys(("1", "7"), HALF))
    assert found.removed == found.masked == 2 * len(HALF) and found.informative
    plan = ot.plan(model, images, ot.GlobalRatio(0.5))
    assert [layer.name for layer in plan.layers] == ["1", "7"]
    assert ot.prune(model, plan)[3].out_channels == CHANNELS
