"""What a folder looks like after a kill: every file whole, what was finished still there, what was left removed."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open

from otprune.deploy.export import RECORD
from otprune.deploy.packages import imported
from otprune.experiments.folder import FINETUNED, PRUNED, SPARSE
from otprune.sealing import damage
from otprune.training.holding import LOCK
from tests.chaos.naming import files, is_temporary

Digests = dict[str, str]


def damaged(folder: Path) -> Iterator[str]:
    """The files under their final names that are not whole, each with the reason."""
    for path in files(folder):
        if not is_temporary(path):
            try:
                WHOLE[path.suffix if path.name != LOCK else LOCK](path)
            except KeyError:
                if not path.name.startswith("events."):  # a log, to which lines are added as they come
                    yield f"{path}: nothing is known of such files"
            except Exception as error:
                yield f"{path}: {error!r}"


def _parse(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8"))


def _require_sealed(path: Path) -> None:
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    assert damage(tensors, metadata) is None


def _require_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def _require_lines(path: Path) -> None:
    assert path.read_text(encoding="utf-8").endswith("\n")


WHOLE: Mapping[str, Callable[[Path], Any]] = {
    ".json": _parse,
    ".md": _require_lines,
    ".safetensors": _require_sealed,
    ".onnx": lambda path: imported("onnx").checker.check_model(path, full_check=True),
    ".pt2": _require_archive,
    ".xml": lambda path: imported("openvino").Core().compile_model(path, "CPU"),  # with the weights beside it
    ".bin": Path.stat,  # is opened with its .xml, without which it is nothing
    LOCK: Path.stat,
}


def finished(folder: Path) -> Digests:
    """The files of finished stages in a folder, or in those inside, by their digests."""
    found = [path for name in (SPARSE, PRUNED, FINETUNED) for path in folder.rglob(name)]
    found += [path.with_name("plan.json") for path in found if path.name == PRUNED]
    return {_name(path, folder): _digest(path) for path in found if path.parent.name != "export"}


def exported(folder: Path) -> Digests:
    """The files that the record of exports tells of."""
    record = folder / RECORD
    told = json.loads(record.read_text(encoding="utf-8"))["files"] if record.exists() else {}
    return {name: _digest(folder / name) for name in told}


def lost(before: Digests, folder: Path) -> list[str]:
    """What was finished before, and is no more as it was."""
    return [name for name, digest in before.items() if _digest(folder / name) != digest]


def leftovers(folder: Path) -> set[Path]:
    """What was being written when kills came."""
    return {path for path in files(folder) if is_temporary(path)}


def forgotten(before: set[Path], changed: set[Path]) -> list[Path]:
    """What a kill left and the next process did not remove, although it went on to change files in that run."""
    return [path for path in before if path.exists() and any(one.is_relative_to(_home(path)) for one in changed)]


def marks(folder: Path) -> dict[Path, tuple[int, int]]:
    """What tells that a file has changed."""
    found = {path: path.stat() for path in files(folder) if not is_temporary(path)}
    return {path: (seen.st_ino, seen.st_size) for path, seen in found.items()}


def changed(before: dict[Path, tuple[int, int]], now: dict[Path, tuple[int, int]]) -> set[Path]:
    """The files that are new, or not as they were."""
    return {path for path, mark in now.items() if before.get(path) != mark}


def _home(path: Path) -> Path:
    """The folder that is held by who writes the file: that of the run, or else its own."""
    return next((folder for folder in path.parents if (folder / LOCK).exists()), path.parent)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"
