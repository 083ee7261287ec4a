"""Processes that train together: as torchrun starts them, or forked from a server that has imported everything.

The functions and networks at the end run in them.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from otprune.training import distributed
from otprune.training.loop import train
from otprune.training.run import Run, Training
from tests.command_line import Done
from tests.processes import DIGITS, command, start

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"
TRAINING = Training(epochs=3, batch=48, rate=0.05, lam=0.02, weight_decay=1e-3, sync_batch_norm=True)


@contextmanager
def a_store() -> Iterator[dict[str, str]]:
    """Where a group can meet, for the environment of its members; nobody else can take the port in between."""
    store = dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    yield {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": f"{store.port}", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def finished(size: int, target: Callable[..., None], *arguments: Any, **environment: str) -> list[int | None]:
    """The exit codes of as many processes that have run a function, told by their environment who they are."""
    with a_store() as where:
        environments = [environment | where | who(rank, size) for rank in range(size)]
        processes: list[BaseProcess] = [start(_told_who, found, target, *arguments) for found in environments]
        for process in processes:
            process.join()
    return [process.exitcode for process in processes]


def together(size: int, target: Callable[..., None], *arguments: Any) -> None:
    """Run a function to its end in a group of as many processes; one is alone, in no group."""
    assert finished(size, _joined, target, *arguments) == [0] * size


def otprune_together(size: int, folder: Path, *arguments: str, **environment: str) -> list[Done]:
    """The command line in each of several processes, and what each of them said."""
    codes = finished(size, _command, arguments, folder, **environment)
    texts = [[(folder / f"{name}-{rank}").read_text() for name in ("out", "err")] for rank in range(size)]
    return [Done(code, *text) for code, text in zip(codes, texts, strict=True)]


def torchrun(*arguments: str, options: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Two processes of a module, started by torchrun itself."""
    start_two = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    told = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"} | environment
    return subprocess.run(
        (*start_two, *options, "-m", *arguments), cwd=ROOT, env=told, text=True, capture_output=True, check=False
    )


def who(rank: int, size: int) -> dict[str, str]:
    """What torchrun tells a process of itself."""
    return {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{size}", "LOCAL_WORLD_SIZE": f"{size}"}


def _told_who(environment: Mapping[str, str], target: Callable[..., None], *arguments: Any) -> None:
    os.environ |= environment
    target(*arguments)


def _joined(target: Callable[..., None], *arguments: Any) -> None:
    with distributed.joined(distributed.launched()):
        target(*arguments)


def _command(arguments: tuple[str, ...], folder: Path) -> None:
    rank = os.environ["RANK"]
    command(arguments, folder / f"out-{rank}", folder / f"err-{rank}")


def net() -> nn.Module:
    """Convolutions and batch norms, in a precision in which the order of a sum does not show."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10)),
    ).double()


def net_in_double(num_classes: int = 10) -> nn.Module:
    """The same for the command line, which makes inputs in torch's default precision."""
    torch.set_default_dtype(torch.float64)
    return net()


def trained(folder: Path, training: Training = TRAINING, build: Callable[[], nn.Module] = net) -> None:
    """Train on the digits, and leave the weights and momenta of every process."""
    run = Run(build(), DIGITS, training)
    train(run)
    left(folder, run.model.state_dict() | {f"momentum{i}": one for i, one in enumerate(run.step.momenta)})


def left(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """What a process leaves under its number."""
    folder.mkdir(exist_ok=True)
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / f"{distributed.share().number}.safetensors")


def found(folder: Path, number: int = 0) -> dict[str, Tensor]:
    """What that process left."""
    return load_file(folder / f"{number}.safetensors")


def difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference between two models."""
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)
