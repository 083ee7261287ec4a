"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a neighbour, flush it to the disk, then rename it over `path`.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "note"), b"whole")
    ...     Path(folder, "note").read_bytes()
    b'whole'
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
