"""VGG with batch norm: VGG-14 for CIFAR and VGG-16-BN for ImageNet share their thirteen convolutions."""

from collections.abc import Iterator

from torch import Tensor, nn

from otprune.models.init import initialize

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_HIDDEN = 4096
_GRID = 7


def vgg14(num_classes: int = 10) -> nn.Module:
    """VGG-14 for 32×32 images: thirteen convs with biases and one linear layer.

    >>> sum(parameter.numel() for parameter in vgg14().parameters())
    14728266
    """
    return _build(pool=nn.Identity(), classifier=nn.Linear(_STAGES[-1][0], num_classes))


def vgg16_bn(num_classes: int = 1000) -> nn.Module:
    """VGG-16 for 224×224 images, with a batch norm after every conv and in place of each dropout.

    >>> import torch
    >>> with torch.device("meta"):
    ...     model = vgg16_bn()
    >>> [type(layer).__name__ for layer in model.classifier]
    ['Linear', 'ReLU', 'BatchNorm1d', 'Linear', 'ReLU', 'BatchNorm1d', 'Linear']
    """
    classifier = nn.Sequential(
        *_hidden_layer(_STAGES[-1][0] * _GRID * _GRID),
        *_hidden_layer(_HIDDEN),
        nn.Linear(_HIDDEN, num_classes),
    )
    return _build(pool=nn.AdaptiveAvgPool2d(_GRID), classifier=classifier)


class VGG(nn.Module):
    """Convolutions, a pool to a fixed grid, a classifier.

    >>> import torch
    >>> vgg14(num_classes=3)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 3])
    """

    def __init__(self, pool: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(*_features())
        self.avgpool = pool
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of a batch of images."""
        scores: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return scores


def _build(pool: nn.Module, classifier: nn.Module) -> nn.Module:
    model = VGG(pool, classifier)
    initialize(model)
    return model


def _features() -> Iterator[nn.Module]:
    channels = 3
    for width, depth in _STAGES:
        for _ in range(depth):
            yield nn.Conv2d(channels, width, kernel_size=3, padding=1)
            yield nn.BatchNorm2d(width)
            yield nn.ReLU(inplace=True)
            channels = width
        yield nn.MaxPool2d(kernel_size=2)


def _hidden_layer(inputs: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, _HIDDEN), nn.ReLU(inplace=True), nn.BatchNorm1d(_HIDDEN)
