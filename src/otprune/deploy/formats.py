"""The formats that a model can be exported to: a table from name to what is done."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from otprune.deploy.agreement import Array, Runner
from otprune.deploy.exported import open_torch, open_weights, write_torch, write_weights
from otprune.deploy.onnx import onnx_model, open_onnx, write_onnx
from otprune.deploy.openvino import open_openvino, openvino_model, write_openvino
from otprune.deploy.program import program
from otprune.deploy.quantizing import quantized_onnx, quantized_openvino
from otprune.errors import DeployError


@dataclass(frozen=True)
class Format:
    """How a model is converted, written and opened again, and where it can be, how it is quantized.

    `open` is given a freshly built model too, which a file of weights alone needs.

    >>> FORMATS["onnx"].suffix, FORMATS["torch"].quantize
    ('.onnx', None)
    """

    suffix: str
    runtime: str
    packages: tuple[str, ...]
    convert: Callable[[nn.Module, Any], Any]
    write: Callable[[Any, Path, Mapping[str, Any]], None]
    open: Callable[[Path, nn.Module], Runner]
    quantize: Callable[[Any, Iterable[Array]], Any] | None = None


FORMATS = {
    "onnx": Format(
        suffix=".onnx",
        runtime="onnxruntime",
        packages=("onnx", "onnxscript", "onnxruntime"),
        convert=onnx_model,
        write=write_onnx,
        open=lambda path, fresh: open_onnx(path),
        quantize=quantized_onnx,
    ),
    "openvino": Format(
        suffix=".xml",
        runtime="openvino",
        packages=("openvino",),
        convert=openvino_model,
        write=write_openvino,
        open=lambda path, fresh: open_openvino(path),
        quantize=quantized_openvino,
    ),
    "torch": Format(
        suffix=".pt2",
        runtime="torch",
        packages=(),
        convert=program,
        write=write_torch,
        open=lambda path, fresh: open_torch(path),
    ),
    "safetensors": Format(
        suffix=".safetensors",
        runtime="torch",
        packages=("safetensors",),
        convert=lambda model, example: model,
        write=write_weights,
        open=open_weights,
    ),
}
QUANTIZER = "nncf"


def chosen_format(name: str, int8: bool) -> Format:
    """The format of that name, which has to be one that can be quantized where `int8` is asked for.

    >>> chosen_format("tflite", int8=False)
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: there is no format tflite: choose one of onnx, openvino, torch, safetensors
    """
    if name not in FORMATS:
        raise DeployError(f"there is no format {name}: choose one of {', '.join(FORMATS)}")
    if int8 and FORMATS[name].quantize is None:
        able = " or ".join(other for other, format in FORMATS.items() if format.quantize is not None)
        raise DeployError(f"{name} is not quantized here: leave int8 out, or export to {able}")
    return FORMATS[name]
