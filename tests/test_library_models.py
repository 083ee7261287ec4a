"""Twenty models of torchvision and timm, as different as they come: pruned exactly, and most of what is zeroed goes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from otprune.abstract import arguments
from otprune.models.building import build_model
from tests.checking import check_model

IMAGE = (2, 3, 64, 64)
DETECTORS = ("torchvision:ssdlite320_mobilenet_v3_large",)  # which take lists of images
# Every second channel is zeroed. Where less than all of it goes, code counts channels, or gates and sums hold them.
MODELS: dict[str, tuple[tuple[int, ...], float]] = {
    "torchvision:resnet18": (IMAGE, 1.0),
    "torchvision:resnext50_32x4d": (IMAGE, 1.0),
    "torchvision:densenet121": (IMAGE, 1.0),
    "torchvision:googlenet": (IMAGE, 1.0),
    "torchvision:mobilenet_v3_small": (IMAGE, 1.0),
    "torchvision:shufflenet_v2_x0_5": (IMAGE, 0.7),
    "torchvision:efficientnet_b0": (IMAGE, 1.0),
    "torchvision:regnet_y_400mf": (IMAGE, 1.0),
    "torchvision:lraspp_mobilenet_v3_large": (IMAGE, 1.0),
    "torchvision:mc3_18": ((1, 3, 4, 32, 32), 1.0),
    "torchvision:ssdlite320_mobilenet_v3_large": (IMAGE, 1.0),
    "timm:cs3darknet_focus_s": (IMAGE, 0.5),
    "timm:dla46x_c": (IMAGE, 1.0),
    "timm:dpn48b": (IMAGE, 1.0),
    "timm:ghostnet_050": (IMAGE, 0.8),
    "timm:repghostnet_050": (IMAGE, 0.9),
    "timm:levit_128s": ((2, 3, 224, 224), 0.6),
    "timm:mobilevit_xxs": (IMAGE, 1.0),
    "timm:resnest14d": (IMAGE, 0.5),
    "timm:resnetv2_18": (IMAGE, 1.0),
}


def example(name: str) -> Tensor | tuple[list[Tensor]]:
    images = torch.rand(MODELS[name][0], dtype=torch.float64)
    return (list(images),) if name in DETECTORS else images


def spread(model: nn.Module, images: Any) -> dict[str, list[int]]:
    """Put weights apart, and take statistics from images, or boxes would have equal scores; return which are to go."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    norms = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    for norm in norms.values():
        nn.init.uniform_(norm.weight, 0.5, 1.0)
        nn.init.uniform_(norm.bias, -0.2, 0.2)
        norm.train()
    with torch.no_grad():
        model(*arguments(images)[0])
    model.eval()
    return {name: list(range(0, norm.num_features, 2)) for name, norm in norms.items()}


@pytest.mark.filterwarnings("default")  # of libraries, which are not ours to mend
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_a_library_is_pruned_exactly(name: str) -> None:
    torch.manual_seed(0)
    model, images = build_model(name).double().eval(), example(name)
    outcome = check_model(model, images, spread(model, images))
    assert outcome.informative
    assert outcome.removed >= MODELS[name][1] * outcome.masked
