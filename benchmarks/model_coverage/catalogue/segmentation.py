"""segmentation-models-pytorch: its decoders, each on two encoders."""

from functools import partial

from torch import nn

from .subject import Subject, images

DECODERS = (
    *("Unet", "UnetPlusPlus", "FPN", "DeepLabV3", "DeepLabV3Plus", "PSPNet", "PAN", "Linknet", "MAnet", "UPerNet"),
    "Segformer",
)
ENCODERS = ("resnet18", "mobilenet_v2")


def subjects() -> list[Subject]:
    """Every decoder on every encoder."""
    pairs = [(decoder, encoder) for decoder in DECODERS for encoder in ENCODERS]
    return [
        Subject("segmentation-models-pytorch", f"{decoder}-{encoder}", partial(build, decoder, encoder), _IMAGES)
        for decoder, encoder in pairs
    ]


_IMAGES = images(2, 3, 128, 128)


def build(decoder: str, encoder: str) -> nn.Module:
    """The network for three classes, with random weights."""
    import segmentation_models_pytorch

    model: nn.Module = getattr(segmentation_models_pytorch, decoder)(encoder, encoder_weights=None, classes=3)
    return model
