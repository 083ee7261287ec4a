"""The checkpoints of a training: written whole or not at all, the last two kept, a damaged one passed over."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from otprune.errors import CheckpointError
from otprune.files import write_atomically

KEPT_CHECKPOINTS = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A training as it stood: its tensors, and as JSON has them its settings and everything else.

    >>> import tempfile, torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> Checkpoint(at(folder, 1, 5), {"model.weight": torch.zeros(2)}, {"lam": 0.1}, {"history": []}).write()
    >>> found = newest(folder)
    >>> found.path.name, found.settings, found.state
    ('at-00001-0000005.safetensors', {'lam': 0.1}, {'history': []})
    """

    path: Path
    tensors: Mapping[str, Tensor]
    settings: dict[str, Any]
    state: dict[str, Any]

    def write(self) -> None:
        """Write it, and let go of all but the last two in its folder."""
        metadata = {"training": json.dumps(self.settings), "state": json.dumps(self.state)}
        contiguous = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, safetensors.torch.save(contiguous, metadata))
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot be written: {error.strerror}. {last_good(folder)} "
                f"Make room, then give the same command again to go on from there."
            ) from error
        _let_go(folder)

    def require_same(self, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Refuse to go on with other settings or another model."""
        for key, value in settings.items():
            if self.settings.get(key) != value:
                raise CheckpointError(
                    f"{self.path}: belongs to a training with {key}={self.settings.get(key)}, not {value}. "
                    f"Use another folder, or the same settings."
                )
        for name in (*tensors, *self.tensors):
            ours, theirs = (_kind(held.get(name)) for held in (tensors, self.tensors))
            if ours != theirs:
                raise CheckpointError(
                    f"{self.path}: belongs to another model, whose {name} is {theirs}, not {ours}. "
                    f"Use another folder, or the same model."
                )


def at(folder: Path, epoch: int, step: int) -> Path:
    """What a checkpoint is called, so that names sort as time goes by.

    >>> at(Path("run"), 3, 20).name
    'at-00003-0000020.safetensors'
    """
    return folder / f"at-{epoch:05d}-{step:07d}.safetensors"


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first.

    >>> checkpoints(Path("nowhere"))
    []
    """
    return sorted(folder.glob("at-*.safetensors"))


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that can be read; one that cannot is set aside.

    >>> newest(Path("nowhere"))
    """
    found = checkpoints(folder)
    while found:
        path = found.pop()
        try:
            return _read(path)
        except SafetensorError as error:
            before = found[-1] if found else "the start"
            log.warning("%s is damaged (%s) and set aside: going on from %s", path, error, before)
            path.rename(path.with_suffix(".damaged"))
    return None


def last_good(folder: Path | None) -> str:
    """What is left when a training cannot go on, as a sentence.

    >>> last_good(None)
    'No checkpoint was written before.'
    """
    left = checkpoints(folder) if folder is not None else []
    return f"The last good checkpoint is {left[-1]}." if left else "No checkpoint was written before."


def _let_go(folder: Path) -> None:
    """Remove all but the last checkpoints, and the beginnings of some that a kill left."""
    for old in (*checkpoints(folder)[:-KEPT_CHECKPOINTS], *folder.glob(".at-*")):
        old.unlink(missing_ok=True)


def _read(path: Path) -> Checkpoint:
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    if not {"training", "state"} <= metadata.keys():
        raise CheckpointError(f"{path}: is no checkpoint of a training. Use another folder.")
    return Checkpoint(path, tensors, json.loads(metadata["training"]), json.loads(metadata["state"]))


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} in {str(tensor.dtype).removeprefix('torch.')}"
