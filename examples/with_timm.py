"""A model of timm, with timm's optimizer, schedule and average of weights.

python examples/with_timm.py FOLDER [EPOCHS]    FOLDER gets small.safetensors
"""

import sys
from pathlib import Path

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch import Tensor, nn

import otprune as ot


def build() -> nn.Module:
    """Any model of timm with batch norms; this is one of the smallest."""
    return timm.create_model("lcnet_050", num_classes=2)


def made_batch(size: int = 8) -> tuple[Tensor, Tensor]:
    """Dark images and bright ones."""
    labels = torch.arange(size) % 2
    return torch.randn(size, 3, 32, 32) + labels.view(-1, 1, 1, 1), labels


def train(model: nn.Module, epochs: int, lam: float, steps: int = 2) -> nn.Module:
    """The average of the weights on the way, which is what timm evaluates."""
    optimizer = create_optimizer_v2(model.train(), opt="sgd", lr=0.05, weight_decay=1e-4)
    schedule = CosineLRScheduler(optimizer, t_initial=epochs)
    ot.L1Penalty(model, lam).attach(optimizer)
    average = ModelEmaV3(model, decay=0.9)
    for epoch in range(epochs):
        schedule.step(epoch)
        for _ in range(steps):
            images, labels = made_batch()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(model)
    return average.module


def main(folder: Path, epochs: int) -> None:
    """Train with sparsity, prune, go on, save, load."""
    model, example = train(build(), epochs, lam=1e-3), torch.zeros(1, 3, 32, 32)
    plan = ot.plan(model, example, ot.GlobalRatio(0.5))  # after a training of full length: ot.OptimalThreshold()
    small = train(ot.prune(model, plan).requires_grad_(), epochs, lam=0)
    folder.mkdir(parents=True, exist_ok=True)
    ot.save(small, folder / "small.safetensors")
    loaded = ot.load(build(), folder / "small.safetensors")
    print(f"parameters: {ot.cost(model, example).parameters:,} → {ot.cost(loaded, example).parameters:,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
