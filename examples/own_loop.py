"""A training loop of your own: one line for the penalty, a few after the training.

python examples/own_loop.py FOLDER [EPOCHS]    FOLDER gets small.safetensors
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import otprune as ot


def build() -> nn.Sequential:
    """Far more channels than the task needs."""
    first = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32, 2))


def made_images(count: int) -> tuple[Tensor, Tensor]:
    """Stripes in noise: upright, or lying."""
    labels = torch.arange(count) % 2
    upright = (torch.arange(8) % 4 < 2).float().expand(count, 1, 8, 8)
    images = torch.where(labels.view(-1, 1, 1, 1) == 1, upright.transpose(2, 3), upright)
    return images + 0.3 * torch.randn(count, 1, 8, 8), labels


def train(model: nn.Module, epochs: int, lam: float) -> None:
    """An ordinary loop; the penalty acts within optimizer.step()."""
    images, labels = made_images(256)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    ot.L1Penalty(model, lam).attach(optimizer)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()


def main(folder: Path, epochs: int) -> None:
    """Train with sparsity, prune, recalibrate, fine-tune, save, load."""
    torch.manual_seed(0)
    train(model := build(), epochs, lam=2e-2)
    images, labels = made_images(128)
    print(plan := ot.plan(model, images[:1]))
    small = ot.recalibrate(ot.prune(model, plan), made_images(256)[0].split(64))
    train(small, epochs=1, lam=0)
    folder.mkdir(parents=True, exist_ok=True)
    ot.save(small, folder / "small.safetensors")
    loaded = ot.load(build(), folder / "small.safetensors").eval()
    print(f"parameters: {ot.cost(model, images[:1]).parameters:,} → {ot.cost(loaded, images[:1]).parameters:,}")
    print(f"accuracy: {(loaded(images).argmax(1) == labels).float().mean():.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
