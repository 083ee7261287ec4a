"""`otprune inspect`: models by name, the shape of their images, weights from a file, and what is said when it fails."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import otprune as ot
from otprune.cli import app
from otprune.errors import ModelError
from otprune.models import digits_net
from otprune.models.building import build_model
from tests.checking import shrink
from tests.command_line import Done


def inspected(*arguments: object) -> Done:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("digits_net", "ResNet: 169,834 parameters, 4,537,590 FLOPs"),
        ("vgg14", "4,224 of 4,224 batch-norm channels (100.0%) can go, in 13 batch norms"),
        ("torchvision:resnet18", "11 of 11 residual branches can go as a whole"),
        ("timm:test_efficientnet", "EfficientNet: "),  # at the size that its configuration names
    ],
)
def test_a_model_is_shown_by_its_name_alone(model: str, line: str) -> None:
    done = inspected(model)
    assert done.code == 0 and line in done.out, done
    assert done.out.startswith("batch norm") and "threshold" not in done.out


def test_a_model_of_a_file_is_shown_at_the_given_shape_and_written_as_json(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def build(num_classes=3):\n"
        "    return nn.Sequential(nn.Conv1d(2, 5, 3), nn.BatchNorm1d(5), nn.ReLU(), nn.Conv1d(5, num_classes, 1))\n"
    )
    done = inspected(f"{tmp_path / 'nets.py'}:build", "--input", "2x9", "--num-classes", 4, "--json", tmp_path / "out")
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "out").read_text(encoding="utf-8"))
    assert record["can_go"] == 5 and record["inputs"]["tuple"][0]["tensor"] == [1, 2, 9]
    assert record["parameters"] == 30 + 5 + 10 + 20 + 4


@pytest.mark.parametrize("kind", ["safetensors", "state dict"])
def test_weights_of_a_file_add_what_ot_would_drop(kind: str, tmp_path: Path) -> None:
    model, path = digits_net(), tmp_path / "weights"
    shrink(model, {"blocks.1.bn1": [2, 4]})
    ot.save(model, path) if kind == "safetensors" else torch.save(model.state_dict(), path)
    done = inspected("digits_net", "--checkpoint", path)
    assert done.code == 0 and "OT would drop 2 of them" in done.out and "threshold" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vgg14", "--input", "3x64x64"], "vgg14 does not run on --input 3x64x64: "),
        (["torchvision:resnet81"], "torchvision has no model named 'resnet81'; is it one of "),
        (["timm:resnet81"], "timm has no model named 'resnet81'; is it one of "),
        (["digits_net", "--checkpoint", "nowhere.safetensors"], "nowhere.safetensors: no such file"),
        (["torchvision:alexnet"], "AlexNet has no batch norm with scaling factors"),
    ],
)
def test_what_cannot_be_inspected_is_told_in_one_line(arguments: list[str], message: str) -> None:
    done = inspected(*arguments)
    assert done.code == 1 and done.err.startswith(message) and done.err.count("\n") == 1


@pytest.mark.parametrize("shape", ["3x", "0x3x3", "three", ""])
def test_what_is_no_shape_is_refused(shape: str) -> None:
    done = inspected("digits_net", "--input", shape)
    assert done.code == 2 and "write it as 3x224x224" in done.err


@pytest.mark.parametrize("wanted", ["torchvision:resnet18", "timm:resnet18"])
def test_models_of_libraries_are_built_for_so_many_classes(wanted: str) -> None:
    assert build_model(wanted, num_classes=7).get_submodule("fc").out_features == 7
    assert build_model(wanted).get_submodule("fc").out_features == 1000


def test_no_weights_are_downloaded_for_a_backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))  # where they would be put
    assert isinstance(build_model("torchvision:fcn_resnet50", num_classes=2), nn.Module)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_must_be_told_its_classes_is_asked_for_them(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("from torch import nn\ndef build(num_classes):\n    return nn.Linear(1, 1)\n")
    with pytest.raises(ModelError, match=r"told\.py:build has to be told num_classes"):
        build_model(f"{tmp_path / 'told.py'}:build")
