"""Lightning: the penalty goes where the optimizer is configured; the pruned network goes back into a module.

python examples/with_lightning.py FOLDER [EPOCHS]    FOLDER gets small.safetensors
"""

import sys
from pathlib import Path

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import otprune as ot
from otprune.models import digits_net


class Classifier(lightning.LightningModule):
    """A module around a network, as large or as small as that is."""

    def __init__(self, net: nn.Module, lam: float) -> None:
        super().__init__()
        self.net, self.lam = net, lam

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """The loss of a batch; the penalty is no part of it."""
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Momentum SGD that shrinks scaling factors."""
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        ot.L1Penalty(self.net, self.lam).attach(optimizer)
        return optimizer


def fit(net: nn.Module, loader: DataLoader, epochs: int, lam: float) -> None:
    """Train with Lightning's trainer."""
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(Classifier(net, lam), loader)


def main(folder: Path, epochs: int) -> None:
    """Train with sparsity, prune, recalibrate, go on, save, load."""
    labels = torch.arange(64) % 2
    images = torch.randn(64, 1, 8, 8) + labels.view(-1, 1, 1, 1)  # dark ones and bright ones
    loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
    fit(model := digits_net(num_classes=2), loader, epochs, lam=1e-3)
    plan = ot.plan(model, images[:1], ot.GlobalRatio(0.5))  # after a training of full length: ot.OptimalThreshold()
    small = ot.recalibrate(ot.prune(model, plan), loader)
    fit(small, loader, epochs, lam=0)
    folder.mkdir(parents=True, exist_ok=True)
    ot.save(small, folder / "small.safetensors")
    loaded = ot.load(digits_net(num_classes=2), folder / "small.safetensors")
    print(f"parameters: {ot.cost(model, images[:1]).parameters:,} → {ot.cost(loaded, images[:1]).parameters:,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
