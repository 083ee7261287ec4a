"""Files from outside: ordinary ones alone, and no longer than a limit, before a byte of them is read."""

import stat
from pathlib import Path

MOST_BYTES = 100_000_000  # as many as safetensors lets a header have


def content_of(path: Path, most: int = MOST_BYTES) -> bytes:
    """All bytes of a file; a `ValueError` tells why it is not read.

    A pipe or a device is not opened: it may never end, or never begin.

    >>> import tempfile
    >>> content_of(Path(tempfile.mkdtemp()))
    Traceback (most recent call last):
    ValueError: it is no ordinary file
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no ordinary file")
        if found.st_size > most:
            raise ValueError(f"it has {found.st_size:,} bytes, more than the {most:,} that are read")
        with path.open("rb") as file:
            return file.read(most)
    except FileNotFoundError as error:
        raise ValueError("there is no such file") from error
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error


def text_of(path: Path, most: int = MOST_BYTES) -> str:
    """The same as text in UTF-8.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> path.write_bytes("λ".encode())
    2
    >>> text_of(path)
    'λ'
    """
    return content_of(path, most).decode()
