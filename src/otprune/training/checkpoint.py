"""The checkpoints of a training: written whole or not at all, the last two kept, a damaged one passed over."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from otprune.errors import CheckpointError
from otprune.files import write_atomically
from otprune.jsons import parsed
from otprune.kinds import require_kind
from otprune.sealing import damage, sealed

KEPT_CHECKPOINTS = 2

log = logging.getLogger(__name__)


class _Damaged(Exception):
    """A file is not as it was written."""


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
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, sealed(self.tensors, metadata))
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot be written: {error.strerror}. {last_good(folder)} "
                f"Make room, then give the same command again to go on from there."
            ) from error
        _let_go(folder)

    def require_state(self, kind: Any) -> None:
        """Refuse a state that is not of a kind.

        >>> Checkpoint(Path("at-00001-0000005.safetensors"), {}, {}, {"lam": "much"}).require_state(dict[str, float])
        Traceback (most recent call last):
        otprune.errors.CheckpointError: at-00001-0000005.safetensors: is no checkpoint of this training: ...
        """
        try:
            require_kind(self.state, kind, "its state")
        except ValueError as error:
            raise CheckpointError(
                f"{self.path}: is no checkpoint of this training: {error}. Use another folder."
            ) from error

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
    return sorted(path for path in folder.glob("at-*.safetensors") if path.is_file())


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that can be read; one that cannot is set aside.

    >>> newest(Path("nowhere"))
    """
    found = checkpoints(folder)
    while found:
        path = found.pop()
        try:
            return _read(path)
        except (SafetensorError, _Damaged) as error:
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


def remove_begun(folder: Path) -> None:
    """Remove the beginnings of checkpoints that kills left; nobody may be writing there now.

    >>> remove_begun(Path("nowhere"))
    """
    for begun in folder.glob(".at-*"):
        begun.unlink(missing_ok=True)


def _let_go(folder: Path) -> None:
    """Remove all but the last checkpoints, and what was only begun."""
    for old in checkpoints(folder)[:-KEPT_CHECKPOINTS]:
        old.unlink(missing_ok=True)
    remove_begun(folder)


def _read(path: Path) -> Checkpoint:
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    if (found := damage(tensors, metadata)) is not None:
        raise _Damaged(found)
    if not {"training", "state"} <= metadata.keys():
        raise CheckpointError(f"{path}: is no checkpoint of a training. Use another folder.")
    return Checkpoint(path, tensors, _parsed(metadata, "training"), _parsed(metadata, "state"))


def _parsed(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    try:
        content = parsed(metadata[key])
    except ValueError as error:
        raise _Damaged(f"its {key} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise _Damaged(f"its {key} cannot be read: it is no object of JSON")
    return content


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} in {str(tensor.dtype).removeprefix('torch.')}"
