"""transformers: convolutional networks with batch norm, made small by their configurations."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from .subject import Subject, images

_STAGES = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 96], "depths": [2, 2, 2, 2]}
_HALF = {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640}

# The class of the model and the settings of its configuration.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet-basic": ("ResNetForImageClassification", {**_STAGES, "layer_type": "basic"}),
    "resnet-bottleneck": ("ResNetForImageClassification", _STAGES),
    "resnet-backbone": ("ResNetBackbone", {**_STAGES, "out_features": ["stage4"]}),
    "regnet-x": ("RegNetForImageClassification", {**_STAGES, "groups_width": 8, "layer_type": "x"}),
    "regnet-y": ("RegNetForImageClassification", {**_STAGES, "groups_width": 8, "layer_type": "y"}),
    "mobilenet-v1": ("MobileNetV1ForImageClassification", {"depth_multiplier": 0.5}),
    "mobilenet-v2": ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.5}),
    "mobilenet-v2-deeplab": ("MobileNetV2ForSemanticSegmentation", {"depth_multiplier": 0.5}),
    "efficientnet": ("EfficientNetForImageClassification", _HALF),
    "mobilevit": ("MobileViTForImageClassification", {}),
    "levit": ("LevitForImageClassification", {}),
    "swiftformer": ("SwiftFormerForImageClassification", {}),
    "textnet": ("TextNetForImageClassification", {}),
    "hgnet-v2": ("HGNetV2ForImageClassification", {}),
    "rt-detr-resnet": ("RTDetrResNetBackbone", {**_STAGES, "out_features": ["stage2", "stage3", "stage4"]}),
}
_SIDES = {"mobilevit": 256}


def subjects() -> list[Subject]:
    """All of them."""
    return [Subject("transformers", name, partial(build, *MODELS[name]), example_of(name)) for name in MODELS]


def build(kind: str, settings: dict[str, Any]) -> nn.Module:
    """The model of a configuration, with random weights."""
    import transformers

    model_class = getattr(transformers, kind)
    model: nn.Module = model_class(model_class.config_class(**settings))
    return model


def example_of(name: str) -> Callable[[], Any]:
    """Makes the pixels that the model takes by keyword."""
    side = _SIDES.get(name, 224)
    return lambda: {"pixel_values": images(2, 3, side, side)()}
