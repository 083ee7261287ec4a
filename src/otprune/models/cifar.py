"""ResNet-50 and DenseNet-121 for CIFAR: torchvision's networks with a 3×3 stem that keeps the image's size."""

import importlib
from types import ModuleType

from torch import nn

from otprune.errors import ModelError
from otprune.models.init import initialize

_STEM = 64


def resnet50(num_classes: int = 10) -> nn.Module:
    """ResNet-50 for 32×32 images.

    >>> import torch
    >>> with torch.device("meta"):
    ...     model = resnet50()
    >>> sum(parameter.numel() for parameter in model.parameters())
    23520842
    """
    model: nn.Module = _torchvision_models("resnet50").resnet50(num_classes=num_classes)
    model.conv1 = _stem_conv()
    model.maxpool = nn.Identity()
    initialize(model)
    return model


def densenet121(num_classes: int = 10) -> nn.Module:
    """DenseNet-121 for 32×32 images.

    >>> import torch
    >>> with torch.device("meta"):
    ...     model = densenet121()
    >>> sum(parameter.numel() for parameter in model.parameters())
    6956426
    """
    model: nn.Module = _torchvision_models("densenet121").densenet121(num_classes=num_classes)
    features = model.get_submodule("features")
    features.conv0 = _stem_conv()
    features.pool0 = nn.Identity()
    initialize(model)
    return model


def _stem_conv() -> nn.Conv2d:
    return nn.Conv2d(3, _STEM, kernel_size=3, padding=1, bias=False)


def _torchvision_models(wanted: str) -> ModuleType:
    # Imported when asked for: torchvision is an optional dependency that the other models do without.
    try:
        return importlib.import_module("torchvision.models")
    except ImportError as error:
        raise ModelError(f"{wanted} needs torchvision, which is missing: pip install otprune[models]") from error
