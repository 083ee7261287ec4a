"""torchvision: every model with batch norm; those made to be quantized as they are before that, when they have it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import detection, optical_flow, segmentation, video

from .names import names_of
from .subject import Subject, images

# Without a threshold on scores an untrained detector finds something; small images and few classes keep it quick.
_THRESHOLDS = frozenset({"score_thresh"})
_CLASSES = 5
_SMALL = {"min_size": 128, "max_size": 160}
_SIDES = {"inception_v3": 299, "quantized_inception_v3": 299, "maxvit_t": 224}


def subjects() -> list[Subject]:
    """All of them, small ones first."""
    return [Subject("torchvision", name, partial(build, name), example_of(name)) for name in names_of("torchvision")]


def build(name: str) -> nn.Module:
    """The model without weights; detectors with every score let through."""
    model: nn.Module
    if name in torchvision.models.list_models(module=detection):
        return _detector(name)
    if name in torchvision.models.list_models(module=segmentation):
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, aux_loss=_aux_loss(name))
        return model
    settings = {"init_weights": False} if name.endswith(("googlenet", "inception_v3")) else {}
    model = torchvision.models.get_model(name, weights=None, **settings)
    return model


def example_of(name: str) -> Callable[[], Any]:
    """Makes an input of the kind that the model takes."""
    if name in torchvision.models.list_models(module=detection):
        return _pictures
    if name in torchvision.models.list_models(module=optical_flow):
        return lambda: (images(1, 3, 128, 128)(), images(1, 3, 128, 128)())
    if name in torchvision.models.list_models(module=video):
        return images(1, 3, 16, *((224, 224) if name == "s3d" else (64, 64)))
    if name in torchvision.models.list_models(module=segmentation):
        return images(2, 3, 128, 128)
    side = _SIDES.get(name, 128)
    return images(2, 3, side, side)


def _aux_loss(name: str) -> bool | None:
    return None if name.startswith("lraspp") else True


def _detector(name: str) -> nn.Module:
    sizes: dict[str, Any] = {} if name.startswith("ssd") else _SMALL
    settings = {"weights": None, "weights_backbone": None, "num_classes": _CLASSES, **sizes}
    model: nn.Module = torchvision.models.get_model(name, **settings)
    for module in model.modules():
        for threshold in _THRESHOLDS.intersection(vars(module)):
            setattr(module, threshold, 0.0)
    return model


def _pictures() -> list[Tensor]:
    return [torch.rand(3, 128, 160), torch.rand(3, 128, 128)]
