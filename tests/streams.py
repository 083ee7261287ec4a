"""Short trainings on a folder of images, in processes of their own, to be killed and gone on with."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from otprune.training.data.folder import ImageFolderDataset
from otprune.training.loop import train
from otprune.training.run import EpochRecord, Run, Training
from otprune.training.stopping import Interrupted

TRAINING = Training(epochs=3, batch=4, rate=0.05, lam=1e-3)  # of five steps each
IMAGES = 20


def make_folder(root: Path) -> Path:
    """Pictures in train/ and val/; a file among them is no picture."""
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        for part in ("train", "val") if number < 4 else ("train",):
            path = root / part / ("dark" if number % 2 else "bright") / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(60 + 130 * (number % 2), size=(40, 50, 3), dtype=np.uint8)).save(path)
    (root / "train" / "dark" / "7.png").write_text("no picture")
    return root


def net() -> nn.Module:
    """Batch norm and dropout: statistics and random numbers have to be found again as well as weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 7, stride=8), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 2)),
    )


def streamed_run(images: Path, folder: Path | None, workers: int = 0, training: Training = TRAINING) -> Run:
    return Run(net(), ImageFolderDataset(images, workers=workers), training, folder)


def train_streamed(images: Path, folder: Path) -> None:
    _fork_workers()
    train(streamed_run(images, folder, workers=2), save_every=0)


def train_until_told_to_stop(images: Path, folder: Path, message: Path) -> None:
    """As from a shell, where Ctrl-C goes to the workers too."""
    _fork_workers()
    os.setpgrp()

    def ready(run: Run, epoch: EpochRecord) -> None:
        message.touch()

    try:
        train(streamed_run(images, folder, 2, Training(epochs=1000, batch=4, lam=1e-3)), ready)
    except Interrupted as stopped:
        message.write_text(str(stopped))


def _fork_workers() -> None:
    """As a command does on Linux; a process from a server would take its time to start another one."""
    multiprocessing.set_start_method("fork", force=True)
