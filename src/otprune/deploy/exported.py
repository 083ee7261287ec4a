"""Torch's own files: the graph of `torch.export`, and the weights alone."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from otprune.checkpoint import load, save
from otprune.deploy.agreement import Array, Runner, require_agreement
from otprune.deploy.program import in_single_precision, program
from otprune.deploy.pt2 import load_program
from otprune.deploy.writing import write_checked
from otprune.inputs import tensors_in
from otprune.sealing import sealed

NOTE = "otprune.note"  # the entry that says how to feed the model, in the metadata of weights
NOTE_FILE = "otprune.json"  # the same, a file inside a .pt2


def to_torch(model: nn.Module, example: Any, path: Path, note: Mapping[str, Any] | None = None) -> float:
    """Write a model as the .pt2 of `torch.export`, which runs without the model's code, for any number of images.

    Returns the largest difference between its outputs, loaded again, and the model's, relative to the largest output;
    above a tolerance it is an error, and no file is written. Batch norms are folded. A note becomes a file inside, as
    JSON. `model` is untouched.

    >>> import tempfile
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_torch(net, torch.zeros(1, 3, 8, 8), Path(folder, "net.pt2")) < 1e-4
    True
    """
    traced = program(model, example)
    return write_checked(
        path,
        lambda draft: write_torch(traced, draft, note),
        lambda draft: require_agreement(model, example, open_torch(draft), "torch"),
    )


def write_torch(traced: ExportedProgram, path: Path, note: Mapping[str, Any] | None = None) -> None:
    """Write an exported program with a note inside."""
    content = io.BytesIO()  # torch's own writer of files ends the whole process where a disk is full
    torch.export.save(traced, content, extra_files=None if note is None else {NOTE_FILE: json.dumps(note)})
    path.write_bytes(content.getbuffer())


def open_torch(path: Path) -> Runner:
    """A .pt2 in torch, on the CPU.

    >>> import tempfile
    >>> net, x = nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = to_torch(net, x, Path(folder, "net.pt2"))
    ...     open_torch(Path(folder, "net.pt2"))([x.numpy()])[0].shape
    (1, 1, 2, 2)
    """
    traced = load_program(path)
    return _runner(traced.module(), traced.example_inputs)


def write_weights(model: nn.Module, path: Path, note: Mapping[str, Any] | None = None) -> None:
    """Write a model's tensors and the plans that pruned it, as `ot.save` does, with a note in the metadata.

    Nothing is folded: the tensors are for the model's own class, which loads them by `ot.load`.
    """
    save(model, path)
    if note is not None:
        with safe_open(path, "pt") as file:
            metadata = {**file.metadata(), NOTE: json.dumps(note)}
        path.write_bytes(sealed(safetensors.torch.load(path.read_bytes()), metadata))


def open_weights(path: Path, fresh: nn.Module) -> Runner:
    """Weights in torch, in a freshly built model of the original class.

    >>> import tempfile
    >>> net, x = nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_weights(net, Path(folder, "net.safetensors"), {"mean": [0.5]})
    ...     open_weights(Path(folder, "net.safetensors"), nn.Conv2d(1, 1, 1))([x.numpy()])[0].shape
    (1, 1, 2, 2)
    """
    return _runner(in_single_precision(load(fresh, path)), ((torch.empty(0),), {}))


def _runner(module: nn.Module, example: Any) -> Runner:
    """A module in torch; `example` is a pair of arguments and keyword arguments, whose tensors are replaced."""

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        given = iter(inputs)
        args, kwargs = pytree.tree_map_only(Tensor, lambda _: torch.from_numpy(next(given)), example)
        with torch.no_grad():
            return [output.numpy() for output in tensors_in(module(*args, **kwargs))]

    return run
