"""A model in a runtime, with an input, ready to be run again and again: torch, torch-compile, onnxruntime, openvino.

All compute in single precision with the same number of threads, and give the same output.
"""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from otprune.deploy.folding import fold_batch_norms
from otprune.deploy.onnx import onnx_model, write_onnx
from otprune.deploy.openvino import openvino_model, write_openvino
from otprune.deploy.packages import imported
from otprune.deploy.pt2 import load_program
from otprune.deploy.timing import on_the_cpu, on_the_gpu
from otprune.errors import DeployError, OtpruneError
from otprune.inputs import tensors_in

Runtime = Literal["torch", "torch-compile", "onnxruntime", "openvino"]
Device = Literal["cpu", "cuda"]
Output = NDArray[np.float32]
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
DEVICES: tuple[Device, ...] = get_args(Device)

# Which runtimes run a file that was exported, by how its name ends.
FILES: dict[str, tuple[Runtime, ...]] = {
    ".onnx": ("onnxruntime", "openvino"),
    ".xml": ("openvino",),
    ".pt2": ("torch", "torch-compile"),
}
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "openvino")
_numbers = itertools.count()


@dataclass(frozen=True)
class Ready:
    """A model with its input in a runtime: `run` is one inference, `timed` measures it, `output` tells what it gives.

    >>> ready = in_runtime(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2), "torch")
    >>> ready.seconds() > 0, ready.output().shape
    (True, (1, 1, 2, 2))
    """

    run: Callable[[], Any]
    output: Callable[[], Output]
    timed: Callable[[Callable[[], Any]], float] = on_the_cpu

    def seconds(self) -> float:
        """How long one inference took."""
        return self.timed(self.run)


def in_runtime(model: nn.Module, example: Tensor, runtime: Runtime, device: Device = "cpu", threads: int = 1) -> Ready:
    """Bring a model to a runtime, its batch norms folded; `model` is untouched. Call it inside `pinned(threads)`.

    >>> in_runtime(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2), "torch", device="tpu")
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: there is no device 'tpu': choose one of cpu, cuda
    """
    require(runtime, device)
    if runtime in FILES[".pt2"]:
        return _in_torch(fold_batch_norms(model, example), example, runtime, device)
    with tempfile.TemporaryDirectory() as folder:
        path = written_for(runtime, model, example, Path(folder))
        return file_in_runtime(path, example, runtime, device, threads)


def file_in_runtime(path: Path, example: Tensor, runtime: Runtime, device: Device = "cpu", threads: int = 1) -> Ready:
    """Bring a file that was exported to a runtime.

    >>> file_in_runtime(Path("net.onnx"), torch.zeros(1), "torch")
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: net.onnx: runs in onnxruntime or openvino, not in torch
    """
    require(runtime, device)
    fitting = runtimes_of(path)
    if runtime not in fitting:
        raise DeployError(f"{path}: runs in {' or '.join(fitting)}, not in {runtime}")
    if not path.is_file():
        raise DeployError(f"{path}: no such file")
    if runtime in FILES[".pt2"]:
        return _in_torch(load_program(path).module(), example, runtime, device)
    images = np.ascontiguousarray(example.detach().cpu().numpy())
    try:
        return (_in_onnxruntime if runtime == "onnxruntime" else _in_openvino)(path, images, device, threads)
    except OtpruneError:
        raise
    except Exception as error:  # the runtimes' own have nothing in common
        raise DeployError(f"{path}: {runtime} cannot open it: {error}. Export the model again.") from error


def written_for(runtime: Runtime, model: nn.Module, example: Tensor, folder: Path) -> Path:
    """A model as the file that a runtime opens.

    Without a look at what it gives: networks that are tried for their latency may have hardly a channel left.
    """
    if runtime == "onnxruntime":
        write_onnx(onnx_model(model, example), folder / "model.onnx")
        return folder / "model.onnx"
    write_openvino(openvino_model(model, example), folder / "model.xml")
    return folder / "model.xml"


def require(runtime: str, device: str) -> None:
    """Refuse what there is not, or not here.

    >>> require("tensorrt", "cpu")
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: there is no runtime 'tensorrt': choose one of torch, torch-compile, ...
    """
    if runtime not in RUNTIMES:
        raise DeployError(f"there is no runtime {runtime!r}: choose one of {', '.join(RUNTIMES)}")
    if device not in DEVICES:
        raise DeployError(f"there is no device {device!r}: choose one of {', '.join(DEVICES)}")
    if device == "cuda" and runtime == "openvino":
        raise DeployError("openvino does not run on NVIDIA's GPUs: leave it out, or measure on the cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise DeployError("there is no GPU that torch can use: measure with --device cpu")


def runtimes_of(path: Path) -> tuple[Runtime, ...]:
    """The runtimes that a file is for.

    >>> runtimes_of(Path("net.xml"))
    ('openvino',)
    """
    if path.suffix not in FILES:
        raise DeployError(f"{path}: is no exported model: those end in {', '.join(FILES)}")
    return FILES[path.suffix]


def _in_torch(network: nn.Module, example: Tensor, runtime: Runtime, device: Device) -> Ready:
    network, images = network.to(device), example.to(device)
    call = _compiled(network, device) if runtime == "torch-compile" else network

    def run() -> Any:
        with torch.inference_mode():
            return call(images)

    return Ready(run, lambda: _first(run()), on_the_gpu if device == "cuda" else on_the_cpu)


def _compiled(network: nn.Module, device: Device) -> Callable[[Tensor], Any]:
    """Compiled for this one input. On a GPU as a graph of kernels: launched one by one they take longer than to run."""

    def call(images: Tensor) -> Any:
        return network(images)

    # A code object of its own: torch keeps but a few compilations of each, and falls back on running uncompiled.
    code = call.__code__.replace(co_name=f"call_{next(_numbers)}")
    own = FunctionType(code, call.__globals__, closure=call.__closure__)
    mode = "reduce-overhead" if device == "cuda" else "default"
    compiled: Callable[[Tensor], Any] = torch.compile(own, dynamic=False, mode=mode)
    return compiled


def _first(outputs: Any) -> Output:
    first: Output = tensors_in(outputs)[0].detach().float().cpu().numpy().copy()
    return first


def _in_onnxruntime(path: Path, images: Output, device: Device, threads: int) -> Ready:
    session = onnxruntime_session(path, device, threads)
    name = session.get_inputs()[0].name
    if device == "cuda":
        return _bound(session, name, images)

    def run() -> Any:
        return session.run(None, {name: images})

    return Ready(run, lambda: run()[0])


def onnxruntime_session(path: Path, device: Device, threads: int, profile: Path | None = None) -> Any:
    """A file in onnxruntime; with `profile`, the times of its nodes are written to a file that begins so."""
    onnxruntime = imported("onnxruntime")
    provider = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise DeployError("this onnxruntime was built without CUDA: pip install onnxruntime-gpu in its place")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Or else threads of the model before spin on while the next one is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    return onnxruntime.InferenceSession(str(path), options, providers=[provider])


def _bound(session: Any, name: str, images: Output) -> Ready:
    """With input and output in the GPU's memory; a run is over when they are synchronized."""
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, imported("onnxruntime").OrtValue.ortvalue_from_numpy(images, "cuda", 0))
    for made in session.get_outputs():
        binding.bind_output(made.name, "cuda", 0)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    def output() -> Output:
        run()
        first: Output = binding.copy_outputs_to_cpu()[0]
        return first

    return Ready(run, output)


def _in_openvino(path: Path, images: Output, device: Device, threads: int) -> Ready:
    request = openvino_request(path, images, threads)

    def output() -> Output:
        request.infer()
        first: Output = request.get_output_tensor(0).data.copy()
        return first

    return Ready(request.infer, output)


def openvino_request(path: Path, images: Output, threads: int, profile: bool = False) -> Any:
    """A file with its input in OpenVINO, in single precision like the others; with `profile`, nodes are timed too.

    On processors that can it would take bfloat16 by itself.
    """
    openvino = imported("openvino")
    core = openvino.Core()
    network = core.read_model(path)
    network.reshape(list(images.shape))
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # the process is
        "PERF_COUNT": profile,
    }
    request = core.compile_model(network, "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(images))
    return request
