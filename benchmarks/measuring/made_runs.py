"""Trainings on images that are made up, and how long their steps take."""

import argparse
import time
from collections.abc import Callable

import torch

from otprune import models
from otprune.training.data.images import Dataset, Images
from otprune.training.run import Run, Training


def made_images(options: argparse.Namespace) -> Dataset:
    """Images of CIFAR's size, made up: what they show takes no time."""
    random = torch.Generator().manual_seed(options.seed)
    pixels = torch.randint(256, (options.images, 3, 32, 32), dtype=torch.uint8, generator=random)
    images = Images(pixels, torch.randint(10, (options.images,), generator=random))
    return Dataset.of(images, images[torch.arange(1)], tuple("0123456789"))


def made_model(name: str, options: argparse.Namespace) -> torch.nn.Module:
    """The network with the weights of the seed."""
    torch.manual_seed(options.seed)
    return models.build(name, num_classes=10).to(options.device)


def made_run(model: torch.nn.Module, data: Dataset, options: argparse.Namespace) -> Run:
    """A run that never ends."""
    return Run(model, data, Training(epochs=10**6, batch=options.batch, seed=options.seed))


def timed_step(model: torch.nn.Module, data: Dataset, options: argparse.Namespace) -> Callable[[], float]:
    """What tells the milliseconds of a step; the step is compiled before."""
    run = made_run(model.to(options.device), data, options)
    epoch_ms([run])
    return lambda: epoch_ms([run])


def epoch_ms(runs: list[Run]) -> float:
    """Milliseconds a step of one epoch of all runs, from the drawing of its images to the last step."""
    return 1e3 * seconds(lambda: train_epoch(runs)) / runs[0].steps


def train_epoch(runs: list[Run]) -> None:
    """One epoch of all runs, a step of each in turn."""
    for run in runs:
        run.begin_epoch()
    for _ in range(runs[0].steps):
        for run in runs:
            run.advance()
    for run in runs:
        run.end_epoch()


def seconds(action: Callable[[], None]) -> float:
    """Wall-clock seconds until the device is done."""
    synchronize()
    start = time.perf_counter()
    action()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    """Waits for the GPU, where there is one to wait for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
