"""A network of HuggingFace transformers, trained by its Trainer before and after pruning.

python examples/with_transformers.py FOLDER [EPOCHS]    FOLDER gets small.safetensors
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import otprune as ot

EXAMPLE = {"pixel_values": torch.zeros(1, 3, 32, 32)}  # a dict is taken as keyword arguments


class MadeImages(Dataset[dict[str, Tensor]]):
    """Dark images and bright ones."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": torch.randn(3, 32, 32) + index % 2, "labels": torch.tensor(index % 2)}


def build() -> nn.Module:
    """A small ResNet with bottlenecks, of fresh weights."""
    shape = {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [2, 2], "layer_type": "bottleneck"}
    return ResNetForImageClassification(ResNetConfig(**shape, num_labels=2))


def train(model: nn.Module, folder: Path, epochs: int, lam: float) -> None:
    """The Trainer takes an optimizer that is made already, with the penalty attached."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    ot.L1Penalty(model, lam).attach(optimizer)
    quiet = {"use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    settings = TrainingArguments(str(folder), num_train_epochs=epochs, per_device_train_batch_size=8, **quiet)
    Trainer(model, settings, train_dataset=MadeImages(), optimizers=(optimizer, None)).train()


def main(folder: Path, epochs: int) -> None:
    """Train with sparsity, prune, go on, save, load."""
    train(model := build(), folder, epochs, lam=1e-3)
    plan = ot.plan(model, EXAMPLE, ot.GlobalRatio(0.5))  # after a training of full length: ot.OptimalThreshold()
    train(small := ot.prune(model, plan), folder, epochs, lam=0)
    folder.mkdir(parents=True, exist_ok=True)
    ot.save(small, folder / "small.safetensors")  # not save_pretrained: its configuration tells the sizes from before
    loaded = ot.load(build(), folder / "small.safetensors")
    print(f"parameters: {ot.cost(model, EXAMPLE).parameters:,} → {ot.cost(loaded, EXAMPLE).parameters:,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
