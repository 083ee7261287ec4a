"""The networks of the paper, and a small one for the demo."""

from typing import Protocol

from torch import nn

from otprune.errors import ModelError
from otprune.models.cifar import densenet121, resnet50
from otprune.models.preresnet import preresnet50
from otprune.models.resnet import digits_net, resnet20
from otprune.models.vgg import vgg14, vgg16_bn

__all__ = [
    "build",
    "densenet121",
    "digits_net",
    "image_shape",
    "names",
    "preresnet50",
    "resnet20",
    "resnet50",
    "vgg14",
    "vgg16_bn",
]


class _Constructor(Protocol):
    def __call__(self, num_classes: int = ...) -> nn.Module: ...


_CONSTRUCTORS: dict[str, _Constructor] = {
    "vgg14": vgg14,
    "resnet20": resnet20,
    "resnet50": resnet50,
    "densenet121": densenet121,
    "vgg16_bn": vgg16_bn,
    "preresnet50": preresnet50,
    "digits_net": digits_net,
}


_OF_ILSVRC = (3, 224, 224)
_OF_CIFAR = (3, 32, 32)
_SHAPES = {"vgg16_bn": _OF_ILSVRC, "preresnet50": _OF_ILSVRC, "digits_net": (1, 8, 8)}


def names() -> tuple[str, ...]:
    """The names that `build` knows.

    >>> "vgg14" in names()
    True
    """
    return tuple(_CONSTRUCTORS)


def build(name: str, num_classes: int | None = None) -> nn.Module:
    """Build a network by its name, with the number of classes of its own data set unless told otherwise.

    >>> build("digits_net", num_classes=3).fc.out_features
    3
    """
    if name not in _CONSTRUCTORS:
        raise ModelError(f"there is no model named {name!r}; choose one of {', '.join(_CONSTRUCTORS)}")
    constructor = _CONSTRUCTORS[name]
    return constructor() if num_classes is None else constructor(num_classes=num_classes)


def image_shape(name: str) -> tuple[int, int, int]:
    """Channels, height and width of the images that a network of this package is for.

    >>> image_shape("vgg14")
    (3, 32, 32)
    """
    return _SHAPES.get(name, _OF_CIFAR)
