"""With --deterministic the weights come out the same every time, and what the record says of it is true."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from measuring.memory import in_a_fresh_process
from torch import Tensor, nn

from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.attribution import noted
from otprune.training.determinism import FIXED, WORKSPACES, determinism
from otprune.training.deterministic_layers import AveragesInOrder, train_in_order
from otprune.training.silent_biases import silent_biases
from otprune.training.step import Optimization
from tests.command_line import otprune, run_here
from tests.gpu import GPU
from tests.small_runs import BreakOff, pipeline
from tests.trained_steps import CLASSES, L1, plain, stepped


def state() -> list[Any]:
    from torch._inductor import config

    cudnn = torch.backends.cudnn
    flags = [torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()]
    flags += [cudnn.deterministic, cudnn.benchmark, torch.utils.deterministic.fill_uninitialized_memory]
    return [*flags, config.deterministic, os.environ.get(WORKSPACES)]


@contextmanager
def otherwise() -> Iterator[None]:
    """Nothing as torch has it at the start."""
    from torch._inductor import config

    torch.backends.cudnn.benchmark, config.deterministic = True, True
    os.environ[WORKSPACES] = ":0:0"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark, config.deterministic = False, False
        del os.environ[WORKSPACES]


def test_two_processes_write_the_same_bytes_and_say_so(tmp_path: Path) -> None:
    asked = {"lam": 1e-2, "epochs": 1, "deterministic": None}
    for name in ("once", "again"):
        assert otprune("train", out=tmp_path / name, **asked).code == 0
    once, again = ((tmp_path / name / "sparse.safetensors").read_bytes() for name in ("once", "again"))
    assert once == again
    (said,) = noted(tmp_path / "once")["train"]
    assert said["deterministic"] is True and said["threads"] == 1


@pytest.mark.parametrize("before", [None, otherwise], ids=["usual", "otherwise"])
def test_all_is_as_it_was_afterwards(before: Callable[[], Any] | None) -> None:
    with determinism(False) if before is None else before():
        usual = state()
        with determinism():
            assert state() == [True, False, True, False, False, True, FIXED[0]]
        assert state() == usual
        with pytest.raises(ZeroDivisionError), determinism():
            raise ZeroDivisionError
        assert state() == usual


def test_a_command_leaves_the_process_as_it_was_and_its_verbs_all_know_the_flag(tmp_path: Path) -> None:
    usual = state()
    common = {"out": tmp_path, "device": "cpu", "deterministic": None}
    begun = {"model": "tests.small_runs:net", "data": "digits", "lam": 0.3, "epochs": 1, "proximal": None}
    done = [run_here("run", **common, **begun, finetune_epochs=1), run_here("scratch", **common)]
    assert [one.code for one in done] == [0, 0]
    assert state() == usual
    assert {stage: [one["deterministic"] for one in those] for stage, those in noted(tmp_path).items()} == {
        stage: [True] for stage in ("train", "prune", "finetune", "scratch")
    }
    for verb in ("train", "finetune", "sweep", "iterate"):
        assert "--deterministic" in run_here(verb, help=None).out


def test_a_run_may_go_on_without_it_and_the_record_tells_both(tmp_path: Path) -> None:
    run = pipeline(tmp_path)
    with pytest.raises(KeyboardInterrupt), determinism():
        stages.train([run], BreakOff(tmp_path.name, "train", epoch=2), save_every=0)
    stages.train([run])
    apart = stages.record(run)["provenance_by_stage"]
    assert [one.get("deterministic", False) for one in apart["train"]] == [True, False]


def test_it_is_refused_where_a_gpu_was_used_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKSPACES, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(TrainingError, match=f"{WORKSPACES} to {FIXED[0]} before Python starts"), determinism():
        pass
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setenv(WORKSPACES, FIXED[1])
    with determinism():
        assert os.environ[WORKSPACES] == FIXED[1]


def test_it_may_be_asked_for_again_where_the_gpu_was_first_used_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACES, "")  # so that it is as it was after the test
    with determinism():
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with determinism():
        assert os.environ[WORKSPACES] == FIXED[0]


class Unpooled(nn.Module):
    """Torch has no deterministic way to put maxima back, on a CPU either."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4)
        self.pool, self.back = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
        self.head = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.back(*self.pool(self.norm(self.conv(images)))).mean((2, 3)))


def test_a_layer_that_torch_cannot_train_so_is_named() -> None:
    model = Unpooled()
    with pytest.raises(TrainingError, match="layer back cannot be trained deterministically") as refused, determinism():
        stepped(model, L1[:1], Optimization())
    assert "do without --deterministic" in str(refused.value)
    assert int(model.norm.num_batches_tracked) == 1  # of the step; looking for the layer adds none
    assert stepped(model, L1[:1], Optimization()).losses


@pytest.mark.parametrize("size", [(7, 7), (3, 5), (7, None), (1, 2)])
def test_averages_and_their_gradients_are_those_of_the_layer_they_stand_for(size: tuple[int, int | None]) -> None:
    images = torch.rand(2, 3, 7, 10, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 3, size[0], size[1] or 10, dtype=torch.float64)
    found = [
        (layer(images), *torch.autograd.grad((layer(images) * weights).sum(), images))
        for layer in (AveragesInOrder(size), nn.AdaptiveAvgPool2d(size))
    ]
    torch.testing.assert_close(found[0], found[1])


def pooled() -> nn.Sequential:
    """Windows that overlap, averages of a grid, channels: all that a GPU may sum up in any order."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(3)),
        *(nn.Flatten(), nn.Linear(288, CLASSES)),
    )


def test_a_model_with_replaced_layers_is_still_understood() -> None:
    model, example = pooled(), torch.zeros(2, 1, 9, 9)
    usual = silent_biases(model, example)
    train_in_order(model)
    assert [type(layer) for layer in model].count(AveragesInOrder) == 1
    assert silent_biases(model, example) == usual == {"0.bias": "1.running_mean", "4.bias": "5.running_mean"}


def digest_after_training(way: Callable[..., Any]) -> str:
    with determinism():
        model = pooled().cuda()
        train_in_order(model)  # for the plain loop
        outcome = way(model, L1[:2], Optimization())
    found = hashlib.sha256()
    for tensor in (*outcome.tensors.values(), *outcome.momenta):
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("way", [plain, stepped], ids=["eager", "captured"])
def test_on_a_gpu_two_processes_come_to_the_same_weights(way: Callable[..., Any], device: str) -> None:
    assert in_a_fresh_process(digest_after_training, way) == in_a_fresh_process(digest_after_training, way)
