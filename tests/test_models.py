"""The networks of the paper: the parameter counts it reports, the start it trains from, and nothing hard-coded."""

import math
import sys

import pytest
import torch
from torch import nn

from otprune import models
from otprune.errors import ModelError

PARAMETERS = {
    ("vgg14", 10): 14_728_266,
    ("vgg14", 100): 14_774_436,
    ("resnet20", 10): 272_474,
    ("resnet50", 10): 23_520_842,
    ("resnet50", 100): 23_705_252,
    ("densenet121", 10): 6_956_426,
    ("densenet121", 100): 7_048_676,
    ("vgg16_bn", 1000): 138_382_376,
    ("preresnet50", 1000): 25_557_160,
}
IMAGES = {
    "vgg14": (3, 32, 32),
    "resnet20": (3, 32, 32),
    "resnet50": (3, 32, 32),
    "densenet121": (3, 32, 32),
    "vgg16_bn": (3, 224, 224),
    "preresnet50": (3, 224, 224),
    "digits_net": (1, 8, 8),
}
NEEDS_TORCHVISION = ("resnet50", "densenet121")


def build_without_data(name: str, num_classes: int | None = None) -> nn.Module:
    if name in NEEDS_TORCHVISION:
        pytest.importorskip("torchvision")
    with torch.device("meta"):
        return models.build(name, num_classes)


@pytest.mark.parametrize(("name", "num_classes"), PARAMETERS)
def test_parameters_are_as_many_as_the_paper_reports(name: str, num_classes: int) -> None:
    model = build_without_data(name, num_classes)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name, num_classes]


def test_every_model_has_an_image_here() -> None:
    assert set(IMAGES) == set(models.names())


@pytest.mark.parametrize("name", IMAGES)
def test_scores_have_one_row_an_image_and_one_column_a_class(name: str) -> None:
    model = build_without_data(name, num_classes=7)
    assert model(torch.empty(3, *IMAGES[name], device="meta")).shape == (3, 7)


@pytest.mark.parametrize("name", ["resnet20", "resnet50", "densenet121", "vgg16_bn", "preresnet50", "digits_net"])
def test_forward_takes_images_of_other_sizes(name: str) -> None:
    channels, height, width = IMAGES[name]
    model = build_without_data(name, num_classes=7)
    assert model(torch.empty(2, channels, 2 * height, 3 * width, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("name", ["vgg14", "resnet20", "densenet121", "digits_net"])
def test_models_start_as_the_paper_says(name: str) -> None:
    if name in NEEDS_TORCHVISION:
        pytest.importorskip("torchvision")
    torch.manual_seed(0)
    for module in models.build(name).modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() >= 4096:
            expected = math.sqrt(2 / (math.prod(module.kernel_size) * module.out_channels))
            assert module.weight.std().item() == pytest.approx(expected, rel=0.1)
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 0.5).all()
        if isinstance(module, nn.Linear):
            assert module.weight.std().item() == pytest.approx(0.01, rel=0.1)
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.Linear) and module.bias is not None:
            assert (module.bias == 0).all()


def test_vgg14_keeps_its_conv_biases_and_five_pools() -> None:
    modules = list(build_without_data("vgg14").modules())
    convs = [m for m in modules if isinstance(m, nn.Conv2d)]
    assert len(convs) == 13
    assert all(conv.bias is not None for conv in convs)
    assert sum(isinstance(m, nn.MaxPool2d) for m in modules) == 5


def test_vgg16_bn_has_batch_norms_where_dropout_was() -> None:
    modules = list(build_without_data("vgg16_bn").modules())
    assert not any(isinstance(m, nn.Dropout) for m in modules)
    assert sum(isinstance(m, nn.BatchNorm1d) for m in modules) == 2


def test_resnet20_projects_where_the_shape_changes() -> None:
    model = build_without_data("resnet20")
    projections = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
    assert [(conv.in_channels, conv.out_channels, conv.stride) for conv in projections] == [
        (16, 32, (2, 2)),
        (32, 64, (2, 2)),
    ]


def test_the_digits_net_learns() -> None:
    torch.manual_seed(0)
    model = models.digits_net(num_classes=2)
    images, labels = torch.randn(32, 1, 8, 8), torch.arange(32) % 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(10):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
    assert (model(images).argmax(dim=1) == labels).all()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"'vgg15'.*vgg14, resnet20"):
        models.build("vgg15")


@pytest.mark.parametrize("name", NEEDS_TORCHVISION)
def test_without_torchvision_the_error_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ModelError, match=rf"{name}.*pip install otprune\[models\]"):
        models.build(name)
