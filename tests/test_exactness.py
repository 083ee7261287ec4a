"""Every run says how far its pruned network is from the masked one, and one that is another network is not written."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import otprune as ot
from otprune.errors import VerificationError
from otprune.experiments.exactness import exactness
from tests.processes import run_pipeline_in


def pruned() -> tuple[nn.Module, nn.Module, ot.PruningPlan, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    net[1].weight.data[1] = 1e-6
    images = torch.randn(2, 3, 8, 8)
    plan = ot.plan(net, images)
    return net, ot.prune(net, plan), plan, images


def test_another_network_is_refused() -> None:
    net, small, plan, images = pruned()
    small[3].weight.data *= 1.001
    with pytest.raises(VerificationError, match="something else than the masked one"):
        exactness(net, small, plan, images)


def test_neither_network_is_changed() -> None:
    net, small, plan, images = pruned()
    found = exactness(net.train(), small, plan, images)
    assert found is not None and found["error"] < 1e-12 < found["scale"]
    assert net.training and net[0].weight.dtype == small[0].weight.dtype == torch.float32


def test_a_network_that_depends_on_nothing_cannot_be_compared() -> None:
    net, small, plan, images = pruned()
    for network in (net, small):
        network[3].weight.data.zero_()
    assert exactness(net, small, plan, images) is None


def test_the_results_of_a_run_say_so(tmp_path: Path) -> None:
    run_pipeline_in(tmp_path)
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["exactness"]
    assert 0 <= found["error"] < 1e-9 * found["scale"]
