"""Models as files for other runtimes: the same outputs there, for any number of images, however they were pruned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import torch
from torch import Tensor, nn

from otprune.deploy.agreement import TOLERANCE, require_agreement
from otprune.deploy.exported import NOTE_FILE, open_torch, to_torch
from otprune.deploy.onnx import open_onnx, to_onnx
from otprune.deploy.openvino import open_openvino, to_openvino
from otprune.errors import DeployError
from otprune.inputs import tensors_in
from tests.pruned_toys import CASES, pruned
from tests.refusals import refused
from tests.toy_nets import DictOutputs, Paths, ResidualIdentity, SharedTowers, Toy, make, values
from tests.unchanged import unchanged

Writer = Callable[..., float]
WRITERS: dict[str, Writer] = {"net.onnx": to_onnx, "net.xml": to_openvino, "net.pt2": to_torch}
OPENERS: dict[str, Any] = {"net.onnx": open_onnx, "net.xml": open_openvino, "net.pt2": open_torch}
NOTE = {"mean": [0.5], "classes": ['<cat> & "dog"', "λ"]}

every_format = pytest.mark.parametrize("name", WRITERS)
# Of all that surgery does, what other runtimes have to be told about.
TOLD = (
    "selections of a concatenation",
    "selections with zeros",
    "two branches",
    "branch before in-place ReLU",
)


def same_in_runtime(model: nn.Module, name: str, folder: Path, images: int) -> None:
    """Outputs of the file are those of the model, for so many images."""
    inputs = [values(images, *tensor.shape[1:]).float() for tensor in model.example()]
    with torch.no_grad():
        expected = [tensor.numpy() for tensor in tensors_in(model.float()(*inputs))]
    found = OPENERS[name](folder / name)([tensor.numpy() for tensor in inputs])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * np.abs(theirs).max())
        assert np.ptp(theirs, axis=0).max() > 0


@every_format
@pytest.mark.parametrize("case", TOLD)
def test_a_pruned_model_gives_the_same_in_other_runtimes(case: str, name: str, tmp_path: Path) -> None:
    model, small, _ = pruned(*CASES[case])
    with unchanged(small):
        apart = WRITERS[name](small, model.example(), tmp_path / name)
    assert 0 <= apart < TOLERANCE
    small.example = model.example  # type: ignore[assignment]
    same_in_runtime(small, name, tmp_path, images=5)


@every_format
@pytest.mark.parametrize("toy", [SharedTowers, DictOutputs, Paths])
def test_several_inputs_and_outputs_and_code_that_counts_images(toy: type[Toy], name: str, tmp_path: Path) -> None:
    model = make(toy)
    WRITERS[name](model, model.example(), tmp_path / name)
    same_in_runtime(model, name, tmp_path, images=4)


def test_of_a_removed_branch_and_of_folded_batch_norms_nothing_is_left(tmp_path: Path) -> None:
    model, small, _ = pruned(*CASES["branch"])
    for net, file in ((model, "whole.onnx"), (small, "small.onnx")):
        to_onnx(net, model.example(), tmp_path / file)
    whole, left = (
        Counter(node.op_type for node in graph(tmp_path / file).node) for file in ("whole.onnx", "small.onnx")
    )
    assert whole == {"Conv": 4, "Relu": 3, "Add": 1}
    assert left == {"Conv": 2, "Relu": 1}  # two in a row are one


def graph(path: Path) -> Any:
    return onnx.load(path).graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the three formats."""
    folder = tmp_path_factory.mktemp("files")
    model = make(ResidualIdentity).train()
    for name, write in WRITERS.items():
        with unchanged(model):
            write(model, values(1, 3, 8, 8), folder / name, NOTE)
    return folder


def test_nothing_else_is_left(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["net.bin", "net.onnx", "net.pt2", "net.xml"]


def test_the_note_is_inside(folder: Path) -> None:
    (entry,) = onnx.load(folder / "net.onnx").metadata_props
    assert json.loads(entry.value) == NOTE
    assert json.loads(openvino.Core().read_model(folder / "net.xml").get_rt_info("otprune").astype(str)) == NOTE
    extra = {NOTE_FILE: ""}
    torch.export.load(folder / "net.pt2", extra_files=extra)
    assert json.loads(extra[NOTE_FILE]) == NOTE


def test_only_the_number_of_images_is_open(folder: Path) -> None:
    (given,) = onnxruntime.InferenceSession(folder / "net.onnx").get_inputs()
    assert given.shape == ["batch", 3, 8, 8]
    (port,) = openvino.Core().read_model(folder / "net.xml").inputs
    assert str(port.partial_shape) == "[?,3,8,8]"


def test_an_onnx_file_is_hardly_larger_than_its_weights(folder: Path) -> None:
    weights = sum(parameter.numel() * 4 for parameter in make(ResidualIdentity).parameters())
    assert (folder / "net.onnx").stat().st_size < weights + 3000


def test_files_do_not_tell_where_the_code_lies(folder: Path) -> None:
    here = str(Path(__file__).parent).encode()
    with zipfile.ZipFile(folder / "net.pt2") as archive:
        inside = [archive.read(name) for name in archive.namelist()]
    for content in (*inside, *((folder / name).read_bytes() for name in ("net.onnx", "net.xml"))):
        assert here not in content


def test_usage_is_reported_to_nobody(tmp_path: Path) -> None:
    """What reports it would leave a file in the user's home."""
    program = "from otprune.deploy.packages import imported; imported('openvino'), imported('nncf')"
    quiet = {name: value for name, value in os.environ.items() if name not in ("CI", "TF_BUILD", "JENKINS_URL")}
    subprocess.run([sys.executable, "-c", program], env={**quiet, "HOME": str(tmp_path)}, check=True)
    assert not (tmp_path / "intel").exists()


class Named(nn.Module):
    """Takes its inputs by name, one of them a number, and writes into one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, image: Tensor, mask: Tensor, scale: float) -> Tensor:
        image -= 0.5
        return self.conv(image) * mask * scale


@every_format
def test_inputs_by_name(name: str, tmp_path: Path) -> None:
    example = {"image": torch.rand(1, 3, 4, 4), "mask": torch.rand(1, 2, 4, 4), "scale": 2.0}
    assert WRITERS[name](Named(), example, tmp_path / name) < TOLERANCE


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(2, -1)


class Bessel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        (Bessel(), "net.onnx", ("Bessel", "prims.bessel_j0", "other operators")),
        (Bessel(), "net.xml", ("Bessel", "aten.special_bessel_j0", "write that part")),
        (Fixed(), "net.pt2", ("Fixed cannot be exported", "any number of images", "constant (2)")),
        (Constant(), "net.pt2", ("Constant gives the same output for different images",)),
    ],
)
def test_a_model_that_cannot_be_exported_is_refused(
    model: nn.Module, name: str, words: Sequence[str], tmp_path: Path
) -> None:
    path = tmp_path / name
    refused(DeployError, *words, models=(model,), call=lambda: WRITERS[name](model, values(1, 3, 4, 4), path))
    assert not any(tmp_path.iterdir())


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    net, example, words = nn.Conv2d(3, 4, 1), torch.zeros(1, 3, 4, 4), "there is no folder"
    refused(DeployError, words, models=(net,), call=lambda: to_torch(net, example, tmp_path / "no" / "net.pt2"))
    refused(DeployError, "is a folder", models=(net,), call=lambda: to_torch(net, example, tmp_path))
    refused(DeployError, ".xml", models=(net,), call=lambda: to_openvino(net, example, tmp_path / "net.onnx"))


@pytest.mark.parametrize(("package", "name"), [("onnxscript", "net.onnx"), ("openvino", "net.xml")])
def test_a_package_that_is_missing_is_named(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    net = nn.Conv2d(3, 4, 1)
    words = (f"{package} is not installed", "pip install 'otprune[deploy]'")
    refused(
        DeployError, *words, models=(net,), call=lambda: WRITERS[name](net, torch.zeros(1, 3, 4, 4), tmp_path / name)
    )


@pytest.mark.parametrize("wrong", [lambda out: out * 1.001, lambda out: out * np.nan, lambda out: out[:1]])
def test_outputs_that_are_not_the_models_are_refused(wrong: Callable[[Any], Any]) -> None:
    net = nn.Linear(3, 2)

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        return [wrong(net(torch.from_numpy(inputs[0])).detach().numpy())]

    refused(
        DeployError, "a runtime", models=(net,), call=lambda: require_agreement(net, values(1, 3), run, "a runtime")
    )
