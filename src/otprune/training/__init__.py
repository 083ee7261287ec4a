"""Training with a sparsity penalty, on any data, in memory or read while it is used; runs can be resumed.

From Python, on any torch Dataset of images and labels:

>>> import torch
>>> from torch import nn
>>> from torch.utils.data import TensorDataset
>>> import otprune as ot
>>> images, labels = torch.rand(32, 3, 8, 8), torch.arange(32) % 2
>>> images[labels == 1] += 1
>>> own = TensorDataset(images, labels)
>>> data = StreamedDataset.of(own, own, classes=("dark", "bright"), workers=0)
>>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
>>> training = Training(epochs=4, batch=8, rate=0.01, lam=1e-3)
>>> train(Run(model, data, training))
>>> accuracy(model, data.test, data.mean, data.std)
1.0
>>> small = ot.prune(model, ot.plan(model, images[:1], ot.OptimalThreshold()))
>>> _ = ot.recalibrate(small, calibration(data, training, images=32))

`Run(..., folder=...)` saves itself there and goes on from there; `load` opens the data that otprune knows by name.
"""

from otprune.training.batch_loss import Teacher
from otprune.training.data import Dataset, Images, StreamedDataset, load
from otprune.training.evaluation import accuracy
from otprune.training.failures import RunsFailed
from otprune.training.feed import calibration
from otprune.training.loop import train, train_together
from otprune.training.run import Run, Training

__all__ = [
    "Dataset",
    "Images",
    "Run",
    "RunsFailed",
    "StreamedDataset",
    "Teacher",
    "Training",
    "accuracy",
    "calibration",
    "load",
    "train",
    "train_together",
]
