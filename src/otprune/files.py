"""Files that are written whole or not at all."""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}")


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a neighbour, flush it to the disk, then rename it over `path`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "note"), b"whole")
    ...     Path(folder, "note").read_bytes()
    b'whole'
    """
    temporary = neighbour(path)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):  # from a disk that nothing can be written to, nor removed from
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # not the neighbour's name, which nobody knows
        raise


def neighbour(path: Path) -> Path:
    """A file beside another that is there for a moment; what a kill leaves of it, `remove_leftovers` removes.

    >>> neighbour(Path("runs/note")).name.startswith(".note.")
    True
    """
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def remove_leftovers(folder: Path) -> None:
    """Remove what `write_atomically` had begun in a folder when a kill ended it; nobody may be writing there now.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, ".note.0123456789abcdef").touch()
    ...     remove_leftovers(Path(folder))
    ...     list(Path(folder).iterdir())
    []
    """
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)
