"""OpenVINO's own files: a graph in .xml and its weights in .bin."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from otprune.deploy.agreement import Array, Runner, require_agreement
from otprune.deploy.packages import imported
from otprune.deploy.program import program, told
from otprune.deploy.writing import write_checked
from otprune.errors import DeployError
from otprune.inputs import tensors_in

NOTE = "otprune"  # the entry of the file's runtime information that says how to feed it

_OPERATORS = re.compile(r"No conversion rule found for operations: (.+)")


def to_openvino(model: nn.Module, example: Any, path: Path, note: Mapping[str, Any] | None = None) -> float:
    """Write a model as `path`, which ends in .xml, and the .bin beside it; for any number of images.

    Returns the largest difference between OpenVINO's outputs and the model's, relative to the largest output; above a
    tolerance it is an error, and no file is written. Batch norms are folded. A note goes into the .xml, as JSON.
    `model` is untouched.

    >>> import tempfile, torch
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_openvino(net, torch.zeros(1, 3, 8, 8), Path(folder, "net.xml")) < 1e-4
    True
    """
    require_xml(path)
    network = openvino_model(model, example)
    return write_checked(
        path,
        lambda draft: write_openvino(network, draft, note),
        lambda draft: require_agreement(model, example, open_openvino(draft), "OpenVINO"),
    )


def openvino_model(model: nn.Module, example: Any) -> Any:
    """A model as an `openvino.Model`, its sizes fixed but for the number of images."""
    openvino = imported("openvino")
    traced = program(model, example)
    try:
        network = openvino.convert_model(traced)
    except Exception as error:  # of several classes, most of them private
        raise DeployError(f"{type(model).__name__} cannot be written for OpenVINO: {_refusal(error)}") from error
    for given, parameter in zip(_inputs(traced), network.get_parameters(), strict=True):
        if isinstance(given, ConstantArgument):  # a number among the inputs is fixed already, and read by nothing
            network.remove_parameter(parameter)
    shapes = [[-1, *tensor.shape[1:]] if tensor.dim() else [] for tensor in tensors_in(example)]
    network.reshape({port: openvino.PartialShape(shape) for port, shape in zip(network.inputs, shapes, strict=True)})
    return network


def _inputs(traced: ExportedProgram) -> list[Any]:
    specs = traced.graph_signature.input_specs
    return [spec.arg for spec in specs if spec.kind is InputKind.USER_INPUT]


def write_openvino(network: Any, path: Path, note: Mapping[str, Any] | None = None) -> None:
    """Write an `openvino.Model` as .xml and .bin, with a note inside the former; weights stay in single precision."""
    if note is not None:
        network.set_rt_info(json.dumps(note), NOTE)
    try:
        imported("openvino").save_model(network, path, compress_to_fp16=False)
    except RuntimeError as error:
        raise DeployError(
            f"{path}: OpenVINO cannot write it, or the .bin beside it. Where the disk is full, make room and try again."
        ) from error


def open_openvino(path: Path) -> Runner:
    """A file in OpenVINO, on the CPU, in single precision: where processors have it, it would take bfloat16.

    >>> import tempfile, torch
    >>> net, x = nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_openvino(openvino_model(net, x), Path(folder, "net.xml"))
    ...     open_openvino(Path(folder, "net.xml"))([x.numpy()])[0].shape
    (1, 1, 2, 2)
    """
    openvino = imported("openvino")
    try:
        compiled = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    except RuntimeError as error:
        raise DeployError(f"{path.name}: OpenVINO cannot load it: {told(error)}") from error

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        results = compiled(list(inputs))
        return [results[index].copy() for index in range(len(compiled.outputs))]

    return run


def require_xml(path: Path) -> None:
    """Raise where a path does not end as OpenVINO's files do.

    >>> require_xml(Path("net.bin"))
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: net.bin: OpenVINO's files end in .xml, with the weights in a .bin beside it
    """
    if path.suffix != ".xml":
        raise DeployError(f"{path}: OpenVINO's files end in .xml, with the weights in a .bin beside it")


def _refusal(error: Exception) -> str:
    operators = _OPERATORS.search(str(error))
    if operators is None:
        return told(error)
    return f"it has nothing for the operators {operators[1]}; write that part of the model with others"
