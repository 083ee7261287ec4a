"""Exported files: drafted, checked, and put into place whole; those that belong together are never mixed up."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from otprune.errors import DeployError
from otprune.files import neighbour

T = TypeVar("T")


def write_checked(path: Path, write: Callable[[Path], object], check: Callable[[Path], T]) -> T:
    """Have a file written elsewhere and checked there, then put it into place with all that was written beside it.

    Returns what the check found. Where the check raises, nothing is put anywhere.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_checked(Path(folder, "note"), lambda draft: draft.write_bytes(b"whole"), Path.read_bytes)
    b'whole'
    """
    require_folder(path)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, path.name)
        with _told_of(draft):
            write(draft)
        found = check(draft)
        others = sorted(other for other in Path(folder).iterdir() if other != draft)
        write_together({path.with_name(written.name): written.read_bytes() for written in (*others, draft)})
    return found


def require_folder(path: Path) -> None:
    """Raise where there is no folder to put a file into.

    >>> require_folder(Path("nowhere/net.onnx"))
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: nowhere/net.onnx: there is no folder nowhere; make it first
    """
    if not path.parent.is_dir():
        raise DeployError(f"{path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise DeployError(f"{path}: is a folder; name a file")


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files of which the last one is what readers open: it is there only with those that belong to it.

    All are written and flushed beside their places first. Then the last one's old version goes, the others are renamed
    into place, and the new last one at the end.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_together({Path(folder, "net.bin"): b"weights", Path(folder, "net.xml"): b"graph"})
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['net.bin', 'net.xml']
    """
    *others, opened = contents
    temporary = {path: neighbour(path) for path in contents}
    try:
        with _told_of(opened):
            for path, content in contents.items():
                _write(temporary[path], content)
            with _out_of_the_way(opened if others else None):
                for path in others:
                    temporary[path].replace(path)
            temporary[opened].replace(opened)
    finally:
        for written in temporary.values():
            written.unlink(missing_ok=True)


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """An error of the system names this file: not a neighbour, which nobody knows, and not nothing."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


@contextmanager
def _out_of_the_way(path: Path | None) -> Iterator[None]:
    """Take a file away; it comes back where that which was to be done without it fails."""
    if path is None or not path.exists():
        yield
        return
    aside = neighbour(path)
    path.replace(aside)
    try:
        yield
    except BaseException:
        aside.replace(path)
        raise
    aside.unlink()


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
