"""A layer by itself, with the ReLU after it, in a runtime: what the latencies of layers are measured on."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from otprune.deploy.layers import DEPTHWISE, Shape
from otprune.deploy.packages import imported
from otprune.deploy.runtimes import Device, Ready, Runtime, file_in_runtime, in_runtime
from otprune.errors import DeployError

OPSET, FORMAT = 17, 8  # old enough for every runtime, and all that a layer needs
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def alone(shape: Shape, inputs: int, outputs: int, runtime: Runtime, threads: int = 1, device: Device = "cpu") -> Ready:
    """The layer with these channels, fresh weights and a drawn input, in a runtime.

    >>> linear = Shape(batch=1, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1)
    >>> alone(linear, 4, 2, "torch").output().shape
    (1, 2)
    """
    if runtime == "torch-compile":
        raise DeployError("torch-compile joins layers, so they have no latencies of their own: choose another runtime")
    module, images = _module(shape, inputs, outputs), torch.randn(shape.batch, inputs, *shape.size)
    if runtime == "torch":
        return in_runtime(module, images, runtime, device, threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "layer.onnx")
        _write_onnx(module[0], images, path)
        return file_in_runtime(path, images, runtime, device, threads)


def nothing(runtime: Runtime, threads: int = 1) -> Ready:
    """A network that does next to nothing: what a call costs by itself."""
    return alone(Shape(1, (), (), (), (), (), 1), 1, 1, runtime, threads)


def _module(shape: Shape, inputs: int, outputs: int) -> nn.Sequential:
    if shape.is_linear:
        return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()).eval()
    convolution = CONVOLUTIONS[len(shape.kernel)](
        inputs,
        outputs,
        shape.kernel,  # type: ignore[arg-type]
        stride=shape.stride,  # type: ignore[arg-type]
        padding=shape.padding,  # type: ignore[arg-type]
        dilation=shape.dilation,  # type: ignore[arg-type]
        groups=inputs if shape.groups == DEPTHWISE else shape.groups,
    )
    return nn.Sequential(convolution, nn.ReLU()).eval()


def _write_onnx(layer: nn.Module, images: Tensor, path: Path) -> None:
    """Written by hand: to export thousands of them would take hours."""
    onnx = imported("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    tensors = {name: layer.get_parameter(name).detach().numpy() for name in ("weight", "bias")}
    name, attributes = _operator(layer)
    nodes = [
        helper.make_node(name, ["images", *tensors], ["sums"], **attributes),
        helper.make_node("Relu", ["sums"], ["outputs"]),
    ]
    given = helper.make_tensor_value_info("images", kind, list(images.shape))
    made = helper.make_tensor_value_info("outputs", kind, list(layer(images).shape))
    weights = [onnx.numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()]
    graph = helper.make_graph(nodes, "layer", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=FORMAT)
    path.write_bytes(model.SerializeToString())


def _operator(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """ONNX's name for the layer, and its attributes."""
    if not isinstance(layer, _ConvNd):
        return "Gemm", {"transB": 1}
    padding = [size for size in layer.padding if isinstance(size, int)]
    attributes = {"strides": layer.stride, "pads": padding * 2, "dilations": layer.dilation, "group": layer.groups}
    return "Conv", attributes | {"kernel_shape": layer.kernel_size}
