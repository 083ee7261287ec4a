"""Short trainings and commands in processes of their own, to be killed, gone on with, and read from.

Processes are forked from a server that has imported everything once, so that starting one takes no time. What is sent
to them is a real signal, and what they leave behind is what any process would.
"""

import ctypes
import multiprocessing
import os
import resource
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import nn

import otprune as ot
from otprune import models
from otprune.__main__ import main
from otprune.errors import OtpruneError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment, Finetuning
from otprune.experiments.pipeline import Pipeline
from otprune.training import data as datasets
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run, Training

DIGITS = datasets.load("digits")
ot.cost(models.digits_net(), torch.zeros(1, 1, 8, 8))  # so that torch loads now what it only loads when first used
TRAINING = Training(epochs=20, lam=1e-3)
EXPERIMENT = Experiment(  # what COMMAND asks for
    "digits_net",
    "digits",
    training=Training(epochs=2, lam=1e-2, augment=False),
    finetuning=Finetuning(epochs=1),
)
COMMAND = (
    "run",
    "--model",
    "digits_net",
    "--data",
    "digits",
    "--lam",
    "1e-2",
    "--epochs",
    "2",
    "--finetune-epochs",
    "1",
)


def net() -> nn.Module:
    """Batch norm and dropout: statistics and random numbers have to be found again as well as weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(54, 10)),
    )


def training_run(folder: Path | None, training: Training = TRAINING) -> Run:
    return Run(net(), DIGITS, training, folder)


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Run a function of this module in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_alone, args=(target, *arguments))
    process.start()
    return process


def finish(target: Callable[..., None], *arguments: Any) -> None:
    """Run it to its end."""
    process = start(target, *arguments)
    process.join()
    assert process.exitcode == 0


def train_in(folder: Path) -> None:
    train(training_run(folder), save_every=0)


def run_pipeline_in(folder: Path) -> None:
    pipeline = Pipeline(EXPERIMENT, folder, DIGITS, torch.device("cpu"))
    stages.run([pipeline], save_every=0.1)


def train_until_the_disk_is_full(folder: Path, message: Path) -> None:
    """From the third epoch on, a file can only be half as large as a checkpoint."""

    def fill_up(run: Run, epoch: EpochRecord) -> None:
        if epoch.epoch == 3:
            size = next(folder.glob("at-*")).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))

    try:
        train(training_run(folder), fill_up, save_every=0)
    except OtpruneError as error:
        message.write_text(str(error))
        sys.exit(1)


def command(arguments: tuple[str, ...], out: Path, err: Path) -> None:
    """The command line as from a shell, what it writes in two files."""
    for stream, path in ((1, out), (2, err)):
        with path.open("w") as file:
            os.dup2(file.fileno(), stream)
    sys.argv = ["otprune", *arguments]
    main()


def command_with_little_room(arguments: tuple[str, ...], out: Path, err: Path, room: int) -> None:
    """The same where no file can be larger than `room`, as on a disk that is full: writing breaks off in the middle."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    command(arguments, out, err)


def command_with_permissions(arguments: tuple[str, ...], out: Path, err: Path) -> None:
    """The same by somebody for whom the permissions of files count, which for the superuser of Linux they do not."""
    if os.geteuid() == 0:
        version, none = (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(version, none) == 0  # gives up every capability
    command(arguments, out, err)


def _alone(target: Callable[..., None], *arguments: Any) -> None:
    torch.set_num_threads(1)  # sums come out the same to the last bit only if they are split the same way
    target(*arguments)
