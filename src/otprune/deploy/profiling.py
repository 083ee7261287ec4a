"""Where a network spends its time in a runtime: layer by layer, as the runtime itself tells it."""

import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from otprune.deploy.folding import fold_batch_norms
from otprune.deploy.layers import layers_of
from otprune.deploy.pinning import pinned
from otprune.deploy.runtimes import Runtime, onnxruntime_session, openvino_request, written_for
from otprune.errors import DeployError

WARM_UP = 5
# What the runtimes call convolutions and linear layers: words in the names of their kinds.
LAYERS = ("conv", "gemm", "matmul", "fullyconnected", "linear")


@dataclass(frozen=True)
class Part:
    """Something that a runtime does in a run: its name, its kind, and its median time in milliseconds.

    >>> Part("features.0", "FusedConv", 0.5).is_layer, Part("pool", "MaxPool", 0.1).is_layer
    (True, False)
    """

    name: str
    kind: str
    ms: float

    @property
    def is_layer(self) -> bool:
        """Whether it is a convolution or a linear layer."""
        return any(word in self.kind.lower() for word in LAYERS)


def profiled(model: nn.Module, example: Tensor, runtime: Runtime, threads: int = 1, runs: int = 100) -> list[Part]:
    """The parts of a network in the order they run in, on the CPU; layers have the names they have in the model.

    Torch is timed by its modules: what it does between them, such as sums, is not there.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    >>> [(part.name, part.kind) for part in profiled(net, torch.zeros(1, 1, 8, 8), "torch", runs=1)]
    [('0', 'Conv2d'), ('1', 'ReLU')]
    """
    if runtime == "torch-compile":
        raise DeployError("torch-compile joins layers and does not tell their times: choose another runtime")
    timed = {"torch": _by_torch, "onnxruntime": _by_onnxruntime, "openvino": _by_openvino}[runtime]
    with pinned(threads), tempfile.TemporaryDirectory() as folder:
        parts = timed(model, example, threads, runs + WARM_UP, Path(folder))
    return _named(parts, [layer.name for layer in layers_of(model, example)], runtime)


def _named(parts: Sequence[Part], names: Sequence[str], runtime: str) -> list[Part]:
    """Runtimes have names of their own for layers, but run them in the order that the model does."""
    found = sum(part.is_layer for part in parts)
    if found != len(names):
        raise DeployError(f"{runtime} runs {found} layers where the model has {len(names)}: they cannot be told apart")
    own = iter(names)
    return [replace(part, name=next(own)) if part.is_layer else part for part in parts]


Times = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of every run by name and kind, in the order of the first run."""


def _medians(times: Times) -> list[Part]:
    return [Part(name, kind, 1e3 * statistics.median(those[WARM_UP:])) for (name, kind), those in times.items()]


def _by_torch(model: nn.Module, example: Tensor, threads: int, runs: int, folder: Path) -> list[Part]:
    network, times, began = fold_batch_norms(model, example), defaultdict(list), {}
    for name, module in network.named_modules():
        if next(module.children(), None) is not None:
            continue

        def begin(module: nn.Module, inputs: Any, name: str = name) -> None:
            began[name] = time.perf_counter()

        def end(module: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
            times[name, type(module).__name__].append(time.perf_counter() - began[name])

        module.register_forward_pre_hook(begin)
        module.register_forward_hook(end)
    with torch.inference_mode():
        for _ in range(runs):
            network(example)
    return _medians({key: _by_run(those, runs) for key, those in times.items()})


def _by_run(times: Sequence[float], runs: int) -> list[float]:
    """What a module that is called several times in a run takes in each."""
    calls = len(times) // runs
    return [sum(times[start : start + calls]) for start in range(0, len(times), calls)]


def _by_onnxruntime(model: nn.Module, example: Tensor, threads: int, runs: int, folder: Path) -> list[Part]:
    path = written_for("onnxruntime", model, example, folder)
    session = onnxruntime_session(path, "cpu", threads, folder / "profile")
    given = {session.get_inputs()[0].name: example.numpy()}
    for _ in range(runs):
        session.run(None, given)
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"].removesuffix("_kernel_time")
            times[name, _kind(name, event["args"]["op_name"])].append(event["dur"] / 1e6)
    return _medians(times)


def _kind(name: str, operator: str) -> str:
    """It runs batch norms that nothing takes in as convolutions, and says so in their names."""
    return "BatchNormalization" if name.endswith("_bn_nchwc") else operator


def _by_openvino(model: nn.Module, example: Tensor, threads: int, runs: int, folder: Path) -> list[Part]:
    path = written_for("openvino", model, example, folder)
    request = openvino_request(path, example.numpy(), threads, profile=True)
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(runs):
        request.infer()
        for node in request.get_profiling_info():
            times[node.node_name, node.node_type].append(node.real_time.total_seconds())
    return _medians(_executed(times))


def _executed(times: Times) -> Times:
    """Without what is fused into others. It counts whole microseconds: of a quick part some runs have 0."""
    return {key: those for key, those in times.items() if any(those)}
