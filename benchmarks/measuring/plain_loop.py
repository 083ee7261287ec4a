"""The loop that everyone writes first: a DataLoader with torchvision's transforms, SGD, an L1 penalty, fp32."""

from collections.abc import Iterator

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision import transforms

from otprune.sparsity import L1Penalty


class PlainLoop:
    """One call is one step, the loading of its batch included; epochs follow one another without end."""

    def __init__(self, model: nn.Module, pixels: Tensor, labels: Tensor, batch: int, workers: int) -> None:
        self.device = next(model.parameters()).device
        self.model = model.train()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
        L1Penalty(model, 1e-4).attach(self.optimizer)
        self._batches = _endless(_loader(pixels, labels, batch, workers))

    def __call__(self) -> None:
        """Train on the next batch."""
        images, labels = (tensor.to(self.device, non_blocking=True) for tensor in next(self._batches))
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()


class _Pictures(TorchDataset[tuple[Tensor, int]]):
    """Images as torchvision's own CIFAR datasets keep and transform them."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels, self.labels = pixels.permute(0, 2, 3, 1).contiguous().numpy(), labels.tolist()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(pixels.shape[-1], padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


def _loader(pixels: Tensor, labels: Tensor, batch: int, workers: int) -> DataLoader[tuple[Tensor, int]]:
    return DataLoader(
        _Pictures(pixels, labels),
        batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
    )


def _endless(loader: DataLoader[tuple[Tensor, int]]) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader
