"""Files that models were exported to, opened as they are to be timed."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from torch import nn

from otprune.deploy.exported import to_torch
from otprune.deploy.onnx import to_onnx
from otprune.deploy.openvino import to_openvino
from otprune.deploy.runtimes import file_in_runtime
from otprune.deploy.subjects import subjects
from tests.parser_fuzz.target import Target, put

IMAGES = torch.ones(1, 1, 4, 4)


def program() -> Target:
    """A .pt2, which torch opens."""
    return Target("zip", [_exported("net.pt2")["net.pt2"]], functools.partial(_open, "net.pt2"))


def onnx() -> Target:
    """Opened by OpenVINO for its shape, and by ONNX Runtime."""
    return Target("bytes", [_exported("net.onnx")["net.onnx"]], functools.partial(_open, "net.onnx"))


def openvino() -> Target:
    """The description of a network, beside its weights."""
    files = _exported("net.xml")

    def read(content: bytes, number: int, folder: Path) -> None:
        put(files["net.bin"], folder / "net.bin")
        _open("net.xml", content, number, folder)

    return Target("bytes", [files["net.xml"]], read)


def _exported(name: str) -> dict[str, bytes]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
    write = {"net.pt2": to_torch, "net.onnx": to_onnx, "net.xml": to_openvino}[name]
    with tempfile.TemporaryDirectory() as folder:
        write(net, IMAGES, Path(folder, name))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _open(name: str, content: bytes, number: int, folder: Path) -> None:
    path = put(content, folder / name)
    runtime = {".pt2": "torch", ".onnx": "onnxruntime", ".xml": "openvino"}[path.suffix]
    (subject,) = subjects([path])
    assert subject.image_shape
    file_in_runtime(path, IMAGES, runtime)  # type: ignore[arg-type]
