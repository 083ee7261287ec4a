"""ONNX files, by torch's own exporter."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from otprune.deploy.agreement import Array, Runner, require_agreement
from otprune.deploy.packages import imported
from otprune.deploy.program import BATCH, program, told
from otprune.deploy.writing import write_checked
from otprune.errors import DeployError

OPSET = 20  # that of ONNX 1.15: what torch's exporter writes best, and every runtime knows by now
NOTE = "otprune"  # the entry of the file's metadata that says how to feed it

_OPERATOR = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")


def to_onnx(model: nn.Module, example: Any, path: Path, note: Mapping[str, Any] | None = None) -> float:
    """Write a model as ONNX, for any number of images; returns how far onnxruntime's outputs are from the model's.

    That is the largest difference relative to the largest output; above a tolerance it is an error, and no file is
    written. Batch norms are folded. A note goes into the file's metadata, as JSON. `model` is untouched.

    >>> import tempfile
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_onnx(net, torch.zeros(1, 3, 8, 8), Path(folder, "net.onnx")) < 1e-4
    True
    """
    proto = onnx_model(model, example)
    return write_checked(
        path,
        lambda draft: write_onnx(proto, draft, note),
        lambda draft: require_agreement(model, example, open_onnx(draft), "onnxruntime"),
    )


def onnx_model(model: nn.Module, example: Any) -> Any:
    """A model as a `ModelProto` of the onnx package."""
    imported("onnx"), imported("onnxscript")  # which torch's exporter needs, and names less clearly
    traced = program(model, example)
    try:
        exported = torch.onnx.export(traced, dynamo=True, opset_version=OPSET, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        raise DeployError(f"{type(model).__name__} cannot be written as ONNX: {_refusal(error)}") from error
    assert exported is not None  # it is None only where it was to be written to a file
    proto = exported.model_proto
    _name_batch(proto.graph)
    _leave_out_origins(proto.graph)
    return proto


def write_onnx(proto: Any, path: Path, note: Mapping[str, Any] | None = None) -> None:
    """Write a `ModelProto` with a note in its metadata."""
    onnx = imported("onnx")
    onnx.checker.check_model(proto)
    if note is not None:
        onnx.helper.set_model_props(proto, {NOTE: json.dumps(note)})
    path.write_bytes(proto.SerializeToString())


def open_onnx(path: Path) -> Runner:
    """A file in onnxruntime, on the CPU.

    >>> import tempfile
    >>> net, x = nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_onnx(onnx_model(net, x), Path(folder, "net.onnx"))
    ...     open_onnx(Path(folder, "net.onnx"))([x.numpy()])[0].shape
    (1, 1, 2, 2)
    """
    onnxruntime = imported("onnxruntime")
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # of several classes, all of them private
        raise DeployError(f"{path.name}: onnxruntime cannot load it: {told(error)}") from error
    names = [given.name for given in session.get_inputs()]

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        outputs: Sequence[Array] = session.run(None, dict(zip(names, inputs, strict=True)))
        return outputs

    return run


def _name_batch(graph: Any) -> None:
    """Call the number of images by its name, instead of by torch's for it."""
    shapes = [given.type.tensor_type.shape.dim for given in graph.input]
    symbol = next(shape[0].dim_param for shape in shapes if shape)
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = re.sub(rf"\b{symbol}\b", BATCH, size.dim_param)


def _leave_out_origins(graph: Any) -> None:
    """Leave out what torch notes on each node, of where in the model it comes from: half of a small file."""
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")


def _refusal(error: Exception) -> str:
    operator = _OPERATOR.search(str(error))
    if operator is None:
        return told(error.__cause__ if isinstance(error.__cause__, Exception) else error)
    return f"there is nothing in ONNX for its operator {operator[1]}; write that part of the model with other operators"
