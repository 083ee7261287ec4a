"""Runs of a small network on digits, each a second or two, whose channels go after a few epochs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import otprune as ot
from otprune.experiments.experiment import Experiment, Finetuning, Pruning
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Silent
from otprune.training.run import EpochRecord, Run, Training
from tests.processes import DIGITS

CPU = torch.device("cpu")
TRAINING = Training(epochs=3, lam=0.3, proximal=True, augment=False)
FINETUNING = Finetuning(epochs=2, rate=0.01, report_after=(1,))
EXPERIMENT = Experiment("tests.small_runs:net", "digits", training=TRAINING, finetuning=FINETUNING)


def net(num_classes: int = 10) -> nn.Module:
    """Two batch norms, one after the other."""
    norms = [nn.BatchNorm2d(16), nn.BatchNorm2d(24)]
    for norm in norms:
        nn.init.constant_(norm.weight, 0.5)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), norms[0], nn.ReLU()),
        *(nn.Conv2d(16, 24, 3), norms[1], nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(96, num_classes)),
    )


def slimming(ratio: float) -> Experiment:
    """The same by Network Slimming, which takes at most half of a layer."""
    return replace(EXPERIMENT, pruning=Pruning(rule="ns", ratio=ratio, max_layer_ratio=0.5))


def pipeline(folder: Path, experiment: Experiment = EXPERIMENT) -> Pipeline:
    return Pipeline(experiment, folder, DIGITS, CPU)


def loaded(path: Path) -> nn.Module:
    return ot.load(net(), path)


def assert_same_weights(left: nn.Module, right: nn.Module) -> None:
    torch.testing.assert_close(left.state_dict(), right.state_dict(), rtol=0, atol=0)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


class BreakOff(Silent):
    """Ends everything after an epoch of a stage, as Ctrl-C would."""

    def __init__(self, folder: str, stage: str, epoch: int) -> None:
        self.moment = (folder, stage, epoch)

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        if (pipeline.folder.name, stage, epoch.epoch) == self.moment:
            raise KeyboardInterrupt
