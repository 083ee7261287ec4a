"""Several processes train what one would: the same images, the penalty once, the same weights in all of them."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from otprune.errors import TrainingError
from otprune.training import distributed
from otprune.training.asking import EVERY_STEPS, Asking
from otprune.training.data import AnyDataset
from otprune.training.data.folder import ImageFolderDataset
from otprune.training.data.share import Share
from otprune.training.distributed import Group
from otprune.training.feed import Chunk, feed
from otprune.training.loop import train
from otprune.training.run import Run, Training
from otprune.training.sync_norm import synchronize
from otprune.training.working_copy import shared_copy
from tests import processes, streams
from tests.gpu import GPU
from tests.groups import TRAINING, a_store, difference, found, left, net, together, trained, who
from tests.processes import DIGITS

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [2, 4])
def test_a_group_with_synchronized_batch_norms_ends_with_the_weights_of_one_process(size: int, tmp_path: Path) -> None:
    """In fp64, since in fp32 a sum in another order already shows after some epochs."""
    together(1, trained, tmp_path / "one")
    together(size, trained, tmp_path / "group")
    one = found(tmp_path / "one")
    assert difference(found(tmp_path / "group"), one) < 1e-12
    assert difference(net().state_dict(), {name: one[name] for name in net().state_dict()}) > 0.1  # it did train


def test_without_synchronized_batch_norms_all_processes_still_have_the_same_weights(tmp_path: Path) -> None:
    apart = replace(TRAINING, sync_batch_norm=False)
    together(2, trained, tmp_path, apart, processes.net)
    first, second = (found(tmp_path, number) for number in range(2))
    statistics = {name for name in first if "running" in name}
    for name in first.keys() - statistics:
        assert torch.equal(first[name], second[name]), name
    assert statistics and not any(torch.equal(first[name], second[name]) for name in statistics)


def test_the_penalty_is_applied_once_not_once_for_each_process_nor_to_a_part(tmp_path: Path) -> None:
    """λ is so large that next to it the loss does nothing to γ in a first step."""
    heavy = Training(epochs=1, batch=1346, rate=1e-4, lam=1e3, weight_decay=0.0, sync_batch_norm=True)
    for size in (1, 2):
        together(size, trained, tmp_path / str(size), heavy)
        gamma = found(tmp_path / str(size))["1.weight"]
        step = heavy.rate * heavy.lam * (1 + heavy.momentum)  # Nesterov's first
        assert torch.allclose(1 - gamma, torch.full_like(gamma, step), rtol=1e-3)
    assert difference(found(tmp_path / "1"), found(tmp_path / "2")) < 1e-12


def test_dropout_differs_from_process_to_process_and_is_the_same_again(tmp_path: Path) -> None:
    for name in ("once", "again"):
        together(2, draw, tmp_path / name)
    first, second = (found(tmp_path / "once", number) for number in range(2))
    assert not torch.equal(first["drawn"], second["drawn"])
    assert torch.equal(second["drawn"], found(tmp_path / "again", 1)["drawn"])
    together(1, draw, tmp_path / "alone")
    assert torch.equal(first["drawn"], found(tmp_path / "alone")["drawn"])


class Drawing(nn.Module):
    """Draws as dropout does, and remembers what."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.drawn.append(torch.rand(3))
        return images


def draw(folder: Path) -> None:
    drawing = Drawing()
    train(Run(nn.Sequential(drawing, net().float()), DIGITS, Training(epochs=1, batch=400)))
    left(folder, {"drawn": torch.stack(drawing.drawn)})


@pytest.mark.parametrize("synchronized", [False, True], ids=["each by its share", "synchronized"])
def test_processes_that_built_different_weights_start_from_those_of_the_first(
    synchronized: bool, tmp_path: Path
) -> None:
    together(2, built_apart, tmp_path, synchronized)
    first, second = (found(tmp_path, number) for number in range(2))
    assert difference(first, second) == 0
    assert difference(first, seeded(0).state_dict()) == 0
    assert difference(first, seeded(1).state_dict()) > 0.1


def seeded(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    built = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))
    built[1].running_mean += seed
    built[1].num_batches_tracked += seed
    return built.to(memory_format=torch.channels_last)


def built_apart(folder: Path, synchronized: bool) -> None:
    """The module that runs forward may have copies in the place of the model's own tensors, as on a GPU it has."""
    model = seeded(distributed.share().number)
    copied = ["0.weight", "1.running_mean", "1.num_batches_tracked", "3.weight"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, copied)
    Run(model, DIGITS, replace(TRAINING, sync_batch_norm=synchronized))
    left(folder, model.state_dict())


def test_processes_ask_each_other_after_some_steps_and_stop_at_the_same(tmp_path: Path) -> None:
    together(2, asked_to_stop, tmp_path)
    first, second = ((tmp_path / f"{number}.txt").read_text() for number in range(2))
    assert first == second
    stopped, asked = map(int, first.split())
    assert 100 <= stopped <= 100 + EVERY_STEPS and asked < stopped / 2


def asked_to_stop(folder: Path) -> None:
    """One of two processes wants to, after the hundredth of steps that take no time."""
    asked, all_reduce = 0, dist.all_reduce

    def counted(*arguments: Any) -> None:
        nonlocal asked
        asked += 1
        all_reduce(*arguments)

    dist.all_reduce, asking, step = counted, Asking(), 1
    while not asking.most(int(step >= 100 and not distributed.leads()), otherwise=0):
        step += 1
    dist.all_reduce = all_reduce
    (folder / f"{distributed.share().number}.txt").write_text(f"{step} {asked}")


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ("[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234", True),
        ("[/gloo/transport/tcp/buffer.cc:72] Read error [127.0.0.1]:1234: Connection reset by peer", True),
        (
            "NCCL error: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting",
            True,
        ),
        ("NCCL error: ncclInvalidUsage: invalid usage. Duplicate GPU detected : rank 0 and rank 1", False),
        ("NCCL error: ncclSystemError: System call (e.g. socket, malloc) failed. Error while creating shared", False),
        ("[/gloo/allreduce.cc:30] invalid number of elements", False),
    ],
)
def test_only_what_says_that_a_process_is_gone_is_told_as_that(said: str, gone: bool) -> None:
    assert distributed.is_lost_connection(RuntimeError(said)) == gone
    assert distributed.is_lost_connection(dist.DistBackendError(said)) == gone


def test_a_torch_without_processes_that_train_together_still_trains_in_one() -> None:
    """Made from one that has them, by taking away what is not built then."""
    without = (
        "import sys, torch.distributed as dist; del dist.Store, dist.PrefixStore;"
        "sys.modules['torch.distributed.rendezvous'] = None; import otprune.training"
    )
    subprocess.run([sys.executable, "-c", without], check=True)


@pytest.mark.parametrize("done", [0, 2])
@pytest.mark.parametrize("kind", ["in memory", "streamed"])
def test_the_shares_of_a_batch_make_up_what_one_process_sees(kind: str, done: int, tmp_path: Path) -> None:
    data: AnyDataset = DIGITS
    if kind == "streamed":
        data = ImageFolderDataset(streams.make_folder(tmp_path), workers=0, size=16)
    training = Training(batch=4, cutout=5)
    whole = steps(feed(data, training, CPU).chunks(1, done), 4)
    halves = [steps(feed(data, training, CPU, Share(number, of=2)).chunks(1, done), 2) for number in range(2)]
    assert len(whole) == len(data.train) // 4 - done
    for (pixels, labels), first, second in zip(whole, *halves, strict=True):
        assert torch.equal(pixels, torch.cat([first[0], second[0]]))
        assert torch.equal(labels, torch.cat([first[1], second[1]]))


def steps(chunks: Iterator[Chunk], size: int) -> list[tuple[Tensor, Tensor]]:
    found = []
    for chunk in chunks:
        batches = zip(chunk.pixels.split(size), chunk.labels.split(size), strict=True)
        found += [(pixels, labels) for pixels, labels in batches if len(labels) == size][chunk.done :]
    return found


def test_a_share_of_streamed_images_reads_no_others(tmp_path: Path) -> None:
    """The one file that is no picture is read by one of two processes alone."""
    root, noticed = streams.make_folder(tmp_path), []
    for number in range(2):
        data = ImageFolderDataset(root, workers=0, size=16)
        list(feed(data, Training(batch=4), CPU, Share(number, of=2)).chunks(0, 0))
        noticed.append(len(data.unreadable))
    assert sorted(noticed) == [0, 1]


def test_a_loss_that_is_not_finite_ends_all_processes_at_the_same_step(tmp_path: Path) -> None:
    together(2, diverge, tmp_path)
    first, second = ((tmp_path / f"{number}.txt").read_text() for number in range(2))
    assert first == second
    assert "the loss is not a finite number at step 3 (epoch 1)" in first


class NotFinite(nn.Module):
    """In the third step of one process, its outputs leave the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += 1
        return images * torch.nan if self.steps == 3 and not distributed.leads() else images


def diverge(folder: Path) -> None:
    try:
        train(Run(nn.Sequential(net().float(), NotFinite()), DIGITS, TRAINING, folder / "run"), save_every=0)
    except TrainingError as error:
        (folder / f"{distributed.share().number}.txt").write_text(str(error))


def test_lambda_steers_itself_alike_in_all_processes(tmp_path: Path) -> None:
    together(2, steer, tmp_path)
    first, second = (found(tmp_path, number)["lam"] for number in range(2))
    assert torch.equal(first, second)
    assert len(first.unique()) > 1


def steer(folder: Path) -> None:
    training = replace(TRAINING, epochs=4, lam=1e-3, target_flops=0.5, sync_batch_norm=False)
    run = Run(net().float(), DIGITS, training)
    train(run)
    left(folder, {"lam": torch.tensor([epoch.lam for epoch in run.history] + [run.lam], dtype=torch.float64)})


def test_a_batch_norm_that_does_more_than_normalize_is_not_synchronized() -> None:
    class WithActivation(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input).relu()

    with pytest.raises(TrainingError, match=r"^1 is a WithActivation, .*without --sync-batch-norm"):
        synchronize(nn.Sequential(nn.Conv2d(1, 2, 1), WithActivation(2)), on_gpu=False)


@pytest.mark.parametrize("on_gpu", [False, True], ids=["ours", "torch's"])
def test_a_synchronized_batch_norm_keeps_its_hooks_its_parameters_and_its_statistics(on_gpu: bool) -> None:
    net = nn.Sequential(nn.BatchNorm2d(2).eval())
    net[0].register_forward_pre_hook(lambda norm, inputs: (inputs[0][:, 1:],))
    net[0].running_mean += 0.5
    net[0].num_batches_tracked = None  # as in a copy for a GPU
    worker, images = shared_copy(net), torch.rand(2, 3, 4, 4)
    synchronize(worker, on_gpu)
    assert torch.equal(worker(images), net(images))
    assert type(net[0]) is nn.BatchNorm2d and isinstance(worker[0], nn.SyncBatchNorm) == on_gpu
    assert worker[0].weight is net[0].weight and worker[0].running_mean is net[0].running_mean
    assert worker[0].num_batches_tracked is not None


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"LOCAL_RANK": ""}, "RANK and LOCAL_RANK do not say which"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR and MASTER_PORT do not say where"),
        ({"MASTER_PORT": "none"}, "MASTER_ADDR and MASTER_PORT do not say where"),
    ],
)
def test_a_process_that_was_told_half_of_who_it_is_asks_for_torchrun(told: dict[str, str], said: str) -> None:
    with a_store() as where:
        environment = who(0, 2) | where
    assert distributed.launched(environment) == Group(0, 2)
    for half in (environment | told, {name: value for name, value in environment.items() if name not in told}):
        with pytest.raises(TrainingError, match=f"{said}.*: start them with torchrun"):
            distributed.launched(half)


@pytest.mark.parametrize("synchronized", [False, True], ids=["each by its share", "synchronized"])
def test_buffers_of_any_type_are_the_first_processes_in_all(synchronized: bool, tmp_path: Path) -> None:
    together(2, train_with_odd_buffers, tmp_path, synchronized)
    for number in range(2):
        buffers = found(tmp_path, number)
        assert buffers["0.mask"].tolist() == [True, False] and buffers["0.shorts"].tolist() == [[7, 7, 7]]
        assert buffers["0.batches"].dtype == torch.int16 and buffers["0.batches"] == 2 * (1347 // 400) + 10


class Buffered(nn.Module):
    """Buffers that begin with the number of the process, one of which counts batches."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([number == 0, number == 1]))
        self.register_buffer("shorts", torch.full((1, 3), 7 + number, dtype=torch.int16))
        self.register_buffer("batches", torch.tensor(10 * (number + 1), dtype=torch.int16))

    def forward(self, images: Tensor) -> Tensor:
        self.batches += self.training
        return images


def train_with_odd_buffers(folder: Path, synchronized: bool) -> None:
    model = nn.Sequential(Buffered(distributed.share().number), net().float())
    train(Run(model, DIGITS, Training(epochs=2, batch=400, sync_batch_norm=synchronized)))
    assert not hasattr(model, "_ddp_params_and_buffers_to_ignore")  # it is the user's
    left(folder, model.state_dict())


@pytest.mark.parametrize("synchronized", [False, True], ids=["each by its share", "synchronized"])
@pytest.mark.parametrize("device", [GPU])
def test_a_group_of_one_on_a_gpu_trains_what_a_captured_step_trains(
    device: str, synchronized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = replace(TRAINING, epochs=2, sync_batch_norm=synchronized)
    alone = Run(net().float().to(device), DIGITS, training)
    train(alone)
    with a_store() as where:
        for name, value in where.items():
            monkeypatch.setenv(name, value)
        with distributed.joined(Group(0, 1)):
            grouped = Run(net().float().to(device), DIGITS, training)
            train(grouped)
    assert [epoch.loss for epoch in grouped.history] == pytest.approx([e.loss for e in alone.history], rel=0.02)
