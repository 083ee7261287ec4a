"""PreResNet-50 for ImageNet: bottlenecks whose batch norms come before their convs (He et al. 2016)."""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional as F

from otprune.models.init import initialize
from otprune.models.resnet import projection

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_EXPANSION = 4
_STEM = 64


def preresnet50(num_classes: int = 1000) -> nn.Module:
    """PreResNet-50 for 224×224 images.

    >>> import torch
    >>> with torch.device("meta"):
    ...     model = preresnet50()
    >>> sum(parameter.numel() for parameter in model.parameters())
    25557160
    """
    model = PreResNet(num_classes)
    initialize(model)
    return model


class PreResNet(nn.Module):
    """A stem, pre-activation bottlenecks, the batch norm that the last sum still needs, an average, a linear layer.

    >>> import torch
    >>> with torch.device("meta"):
    ...     scores = PreResNet(num_classes=5)(torch.zeros(2, 3, 64, 64))
    >>> scores.shape
    torch.Size([2, 5])
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, _STEM, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(_STEM)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.blocks = nn.Sequential(*_blocks())
        self.last_bn = nn.BatchNorm2d(_STAGES[-1][0] * _EXPANSION)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(_STAGES[-1][0] * _EXPANSION, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        stem = self.maxpool(F.relu(self.bn(self.conv(images))))
        last = F.relu(self.last_bn(self.blocks(stem)))
        scores: Tensor = self.fc(self.avgpool(last).flatten(1))
        return scores


class PreActBottleneck(nn.Module):
    """BN-ReLU-conv three times beside a shortcut from the raw input.

    The projections read that raw input and have a batch norm of their own, where He et al. project the activated one
    without: only so does the network cost the 4.14 GFLOPs that the paper reports.

    >>> import torch
    >>> PreActBottleneck(16, 8, stride=2)(torch.zeros(1, 16, 6, 6)).shape
    torch.Size([1, 32, 3, 3])
    """

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * _EXPANSION, kernel_size=1, bias=False)
        self.shortcut = projection(in_channels, width * _EXPANSION, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output: a sum that no ReLU follows."""
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        out = self.conv3(F.relu(self.bn3(out)))
        total: Tensor = out + self.shortcut(x)
        return total


def _blocks() -> Iterator[nn.Module]:
    channels = _STEM
    for stage, (width, depth) in enumerate(_STAGES):
        for block in range(depth):
            yield PreActBottleneck(channels, width, stride=2 if stage > 0 and block == 0 else 1)
            channels = width * _EXPANSION
