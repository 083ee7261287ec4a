"""One file from the web, of a known size and digest, or an error that says what came instead."""

import hashlib
import http.client
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from otprune.errors import DataError

TIMEOUT_SECONDS = 30
CHUNK = 1 << 20

Progress = Callable[[str, int, int], None]
"""Called with what is being fetched, the bytes that are done, and the bytes in all: 0 as long as nobody knows."""


@dataclass(frozen=True)
class Remote:
    """A file on the web: where it is and what it must be.

    >>> Remote("https://example.org/data/images.tar.gz", size=3, sha256="…").name
    'images.tar.gz'
    """

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def download(remote: Remote, folder: Path, progress: Progress) -> Path:
    """Fetch the file into the folder and check it; never write more than its known size.

    >>> import tempfile
    >>> source, folder = Path(tempfile.mkdtemp(), "note"), Path(tempfile.mkdtemp())
    >>> source.write_bytes(b"abc")
    3
    >>> remote = Remote(source.as_uri(), 3, hashlib.sha256(b"abc").hexdigest())
    >>> download(remote, folder, progress=lambda *step: print(step)).read_bytes()
    ('note', 3, 3)
    b'abc'
    """
    path, digest, done = folder / remote.name, hashlib.sha256(), 0
    with _opened(remote) as response, path.open("wb") as file:
        while chunk := _read(response, remote, done):
            done += len(chunk)
            if done > remote.size:
                raise DataError(f"{remote.url} sends more than the {remote.size} bytes of the published file")
            digest.update(chunk)
            file.write(chunk)
            progress(remote.name, done, remote.size)
    if done < remote.size:
        raise DataError(f"{remote.url} ended after {done} of {remote.size} bytes: try again")
    if digest.hexdigest() != remote.sha256:
        raise DataError(
            f"{remote.url} is not the published file: its SHA-256 is {digest.hexdigest()}, expected {remote.sha256}"
        )
    return path


def _opened(remote: Remote) -> http.client.HTTPResponse:
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(remote.url, timeout=TIMEOUT_SECONDS)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{remote.url} cannot be reached: {error}") from error
    return response


def _read(response: http.client.HTTPResponse, remote: Remote, done: int) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{remote.url} broke off after {done} of {remote.size} bytes: {error}. Try again.") from error
