"""Runs of a sweep share a CPU or a GPU of a Ray node, as many of them as were asked for."""

import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.command_line import said
from tests.gpu import GPU
from tests.ray_cluster import ray_cluster
from tests.ray_sweeps import LIMIT
from tests.small_runs import net, read

pytest.importorskip("ray")

HALF = {"cpu": {"cpus_per_run": 0.5}, "cuda": {"cpus_per_run": 0.1, "gpus_per_run": 0.5}}
MEETING = "OTPRUNE_TEST_MEETING"


def met(num_classes: int = 10) -> nn.Module:
    """A network that a run gets as soon as another run is under way, too."""
    import ray

    if ray.is_initialized() and (run := ray.get_runtime_context().get_task_name()):
        place, began = Path(os.environ[MEETING]), time.monotonic()
        if not (place / run).exists():
            (place / run).touch()
        while len(list(place.iterdir())) < 2:
            assert time.monotonic() - began < LIMIT, f"{run} is alone"
            time.sleep(0.05)
    return net(num_classes)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_two_runs_share_what_each_takes_half_of_and_the_third_waits(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"model": "tests.test_ray_portions:met", "data": "digits", "epochs": 4, "finetune_epochs": 4}
    place, out = tmp_path / "met", tmp_path / "runs"
    place.mkdir()
    monkeypatch.setenv(MEETING, str(place))
    with ray_cluster(nodes=1, gpus=int(device == "cuda")) as cluster:
        ray = {"ray": cluster.address, **HALF[device]}
        done = said("sweep", **asked, **ray, proximal=None, lam=0.3, seeds=3, device=device, out=out)
    assert done.code == 0, done.err
    records = sorted(out.glob("*/record.json"), key=written)
    *_, last = sorted(place.iterdir(), key=written)
    assert len(records) == 3 and written(last) >= written(records[0])
    for record in records:
        gpu = read(record)["provenance"].get("gpu")
        assert gpu == (torch.cuda.get_device_name() if device == "cuda" else None)


def written(path: Path) -> int:
    """When."""
    return path.stat().st_mtime_ns
