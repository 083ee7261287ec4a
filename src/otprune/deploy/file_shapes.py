"""What images an exported file takes, as the file itself says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from otprune.deploy.packages import imported
from otprune.deploy.pt2 import load_program
from otprune.errors import DeployError


def shape_of(path: Path) -> tuple[int, ...]:
    """The shape of an image that a file takes.

    >>> import tempfile, torch
    >>> from otprune.deploy.exported import to_torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = to_torch(torch.nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8), Path(folder, "net.pt2"))
    ...     shape_of(Path(folder, "net.pt2"))
    (3, 8, 8)
    """
    if path.suffix == ".pt2":
        return _shape_of_program(path)
    sizes = _sizes_of(path)
    if any(size.is_dynamic for size in sizes):
        raise DeployError(f"{path}: does not say of what size its images are: export it for one size")
    return tuple(size.get_length() for size in sizes)


def _shape_of_program(path: Path) -> tuple[int, ...]:
    inputs = load_program(path).example_inputs
    first = inputs[0][0] if inputs and inputs[0] else None
    if not isinstance(first, Tensor):
        raise DeployError(f"{path}: does not say what images it takes: export the model again")
    return tuple(first.shape[1:])


def _sizes_of(path: Path) -> Sequence[Any]:
    try:
        return list(imported("openvino").Core().read_model(path).inputs[0].partial_shape)[1:]
    except (RuntimeError, ValueError, IndexError) as error:
        raise DeployError(f"{path}: is no network that can be opened: {error}. Export the model again.") from error
