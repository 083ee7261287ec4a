"""Residual networks of basic blocks: ResNet-20 for CIFAR, and the small one that the demo trains."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from otprune.models.init import initialize


def resnet20(num_classes: int = 10) -> nn.Module:
    """ResNet-20 for 32×32 images, with 1×1 projections where the shape changes.

    >>> sum(parameter.numel() for parameter in resnet20().parameters())
    272474
    """
    return _build(in_channels=3, widths=(16, 32, 64), depth=3, num_classes=num_classes)


def digits_net(num_classes: int = 10) -> nn.Module:
    """Small residual network for 1×8×8 images of digits.

    It is wider than the digits need, so that there is something to prune.

    >>> import torch
    >>> digits_net()(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    return _build(in_channels=1, widths=(32, 64), depth=2, num_classes=num_classes)


class ResNet(nn.Module):
    """A conv, stages of basic blocks that halve the image from the second on, an average, a linear layer.

    >>> import torch
    >>> ResNet(in_channels=3, widths=(4, 8), depth=1, num_classes=2)(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 2])
    """

    def __init__(self, in_channels: int, widths: Sequence[int], depth: int, num_classes: int) -> None:
        super().__init__()
        self.conv = _conv3x3(in_channels, widths[0], stride=1)
        self.bn = nn.BatchNorm2d(widths[0])
        self.blocks = nn.Sequential(*_blocks(widths, depth))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        stem = F.relu(self.bn(self.conv(images)))
        scores: Tensor = self.fc(self.avgpool(self.blocks(stem)).flatten(1))
        return scores


class BasicBlock(nn.Module):
    """Two 3×3 convs beside a shortcut.

    >>> import torch
    >>> BasicBlock(4, 8, stride=2)(torch.zeros(1, 4, 6, 6)).shape
    torch.Size([1, 8, 3, 3])
    """

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(in_channels, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3x3(width, width, stride=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = projection(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, after the sum's ReLU."""
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(residual + self.shortcut(x))


def projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """The shortcut of a block: a 1×1 conv and a batch norm where the shape changes, nothing elsewhere.

    >>> projection(4, 4, stride=1)
    Identity()
    """
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels))


def _build(in_channels: int, widths: Sequence[int], depth: int, num_classes: int) -> nn.Module:
    model = ResNet(in_channels, widths, depth, num_classes)
    initialize(model)
    return model


def _blocks(widths: Sequence[int], depth: int) -> Iterator[nn.Module]:
    channels = widths[0]
    for stage, width in enumerate(widths):
        for block in range(depth):
            yield BasicBlock(channels, width, stride=2 if stage > 0 and block == 0 else 1)
            channels = width


def _conv3x3(in_channels: int, out_channels: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
