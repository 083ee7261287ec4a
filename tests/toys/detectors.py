"""Networks that want more in training than images, and whose outputs depend in size on what they see."""

import torch
from torch import Tensor, nn


class Detector(nn.Module):
    """In training it wants targets; in evaluation it returns as many scores as are above a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3))
        self.norm, self.head = nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1)

    def forward(self, images: list[Tensor], targets: Tensor | None = None) -> dict[str, Tensor]:
        scores: Tensor = self.head(self.norm(self.body(torch.stack(images))).relu()).flatten(1)
        if self.training:
            if targets is None:
                raise ValueError("in training mode, targets should be passed")
            return {"loss": (scores - targets).square().mean()}
        found = scores[scores > scores.mean()]
        return {"scores": found, "nothing": torch.cat([found[:0], found[:0]])}


class Auxiliary(Detector):
    """A head that runs in training alone, when there are targets."""

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = nn.Conv2d(8, 1, 1)

    def forward(self, images: list[Tensor], targets: Tensor | None = None) -> dict[str, Tensor]:
        found = super().forward(images, targets)
        return found | {"auxiliary": self.auxiliary(self.body[:3](torch.stack(images)))} if self.training else found


class Sorting(Detector):
    """In evaluation its code looks at what it found, after all that has to do with channels."""

    def forward(self, images: list[Tensor], targets: Tensor | None = None) -> dict[str, Tensor]:
        found = super().forward(images, targets)
        if not self.training and found["scores"].max() > 0:
            found["scores"] = found["scores"] / max(found["scores"].max(), torch.ones(()))
        return found


class Choosing(Detector):
    """In evaluation its code looks at what it found, and returns the one or the other layer's channels."""

    def forward(self, images: list[Tensor], targets: Tensor | None = None) -> dict[str, Tensor]:
        found = super().forward(images, targets)
        body = self.body(torch.stack(images))
        return found if self.training else {"channels": body if found["scores"].max() > 0 else self.norm(body)}


class Stopping(Detector):
    """It goes on with another head unless what it found is enough."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Conv2d(8, 1, 1)

    def forward(self, images: list[Tensor], targets: Tensor | None = None) -> dict[str, Tensor]:
        found = super().forward(images, targets)
        if self.training or (found["scores"].numel() and found["scores"].max() < 1e9):
            return {"best": found["loss" if self.training else "scores"].argmax()}
        return {"best": self.second(self.body[:3](torch.stack(images))).argmax()}


class Ignoring(nn.Module):
    """It looks at its data to tell which of two layers' channels it is going to use."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.one(x), self.other(x)
        return one.argmax(1) if one.argmax(1).sum() >= 0 else other.argmax(1)
