"""timm: of every file of models the smallest one with batch norm."""

import warnings
from functools import partial

from torch import nn

from .names import names_of
from .subject import Subject, images

with warnings.catch_warnings():  # about how its own modules are arranged
    warnings.simplefilter("ignore")
    import timm


# More ways to build a block than the smallest model of a file shows.
KINDS = (
    *("mobileone_s0", "repvgg_a0", "gernet_s", "eca_resnext26ts", "gcresnext26ts", "lambda_resnet26t", "botnet26t_256"),
    *("mixnet_s", "mnasnet_small", "tf_efficientnet_b0", "efficientnet_b0", "fbnetc_100", "spnasnet_100", "tinynet_e"),
    *("resnet10t", "resnet26t", "resnetblur50", "seresnext26d_32x4d", "ecaresnet26t", "resnetaa50", "regnety_002"),
    *("cspresnet50", "cspresnext50", "cspdarknet53", "cs3sedarknet_l", "darknet53", "res2net50_14w_8s"),
    *("skresnext50_32x4d", "dla34", "ghostnetv2_100", "mobilenetv4_conv_small", "lcnet_050", "coatnet_pico_rw_224"),
    "legacy_seresnext26_32x4d",
)


def subjects() -> list[Subject]:
    """All of them, small ones first."""
    names = dict.fromkeys([*names_of("timm"), *KINDS])
    return [Subject("timm", name, partial(build, name), images(2, *_size(name))) for name in names]


def build(name: str) -> nn.Module:
    """The model with random weights."""
    model: nn.Module = timm.create_model(name, pretrained=False)
    return model


def _size(name: str) -> tuple[int, int, int]:
    settings = timm.get_pretrained_cfg(name)
    return (3, 224, 224) if settings is None else settings.input_size
