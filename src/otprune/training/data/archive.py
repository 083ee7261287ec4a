"""Chosen files out of a .tar.gz that nobody vouches for."""

import gzip
import io
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from otprune.errors import DataError

REST_LIMIT = 16 << 20  # bytes that members nobody asked for may come to: a read-me, a list of names
HEADERS_LIMIT = 1 << 20
# What tarfile and gzip raise; a long chain of headers that each describe the next one is a RecursionError.
DAMAGED = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, OverflowError, RecursionError)


def extract(archive: Path, wanted: Mapping[str, int], folder: Path) -> None:
    """Write the wanted members, each no longer than its limit, into the folder, without the folders they are in.

    An archive with a link, a device, or a name that leads out of its folder is refused as a whole.
    Whether the files are the right ones is for their digests to say.

    >>> import io, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
    ...     member = tarfile.TarInfo("data/note")
    ...     member.size = 3
    ...     tar.addfile(member, io.BytesIO(b"abc"))
    >>> extract(folder / "a.tar.gz", {"data/note": 3}, folder)
    >>> (folder / "note").read_bytes()
    b'abc'
    """
    try:
        missing = wanted.keys() - _extracted(archive, wanted, folder)
    except DAMAGED as error:
        raise DataError(f"{archive.name} is damaged: {error}. Fetch it again.") from error
    if missing:
        raise DataError(f"{archive.name} lacks {', '.join(sorted(missing))}")


def _extracted(archive: Path, wanted: Mapping[str, int], folder: Path) -> set[str]:
    found, rest = set(), 0
    most = sum(wanted.values()) + REST_LIMIT + HEADERS_LIMIT
    # "r:", for tarfile would else unpack what is packed once more, and nothing would bound that.
    with gzip.open(archive) as packed, tarfile.open(fileobj=_Bounded(packed, most, archive), mode="r:") as tar:
        for member in tar:
            name = _safe_name(member, archive)
            if name not in wanted:
                rest += member.size
                _require_at_most(rest, REST_LIMIT, "what else is in it", archive)
                continue
            _require_at_most(member.size, wanted[name], name, archive)
            content = tar.extractfile(member)
            if content is None:
                raise DataError(f"{archive.name}: {name} is not a file")
            with content, (folder / PurePosixPath(name).name).open("wb") as file:
                shutil.copyfileobj(content, file)
            found.add(name)
    return found


class _Bounded(io.RawIOBase):
    """An archive that is unpacked no further than a limit, whatever sizes its headers claim."""

    def __init__(self, packed: gzip.GzipFile, most: int, archive: Path) -> None:
        self._packed, self._most, self._archive = packed, most, archive

    def read(self, size: int = -1) -> bytes:
        _require_at_most(self._packed.tell() + max(size, 0), self._most, "it", self._archive)
        return self._packed.read(min(max(size, 0), self._most))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        _require_at_most(offset, self._most, "it", self._archive)
        return self._packed.seek(offset, whence)

    def tell(self) -> int:
        return self._packed.tell()


def _safe_name(member: tarfile.TarInfo, archive: Path) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise DataError(f"{archive.name} is refused: its member {member.name!r} leads out of its folder")
    if not (member.isfile() or member.isdir()):
        raise DataError(f"{archive.name} is refused: its member {member.name!r} is neither a file nor a folder")
    if member.size < 0:  # which leads back to its own header, again and again
        raise DataError(f"{archive.name} is refused: its member {member.name!r} claims {member.size} bytes")
    return str(path)


def _require_at_most(size: int, limit: int, what: str, archive: Path) -> None:
    if size > limit:
        raise DataError(f"{archive.name} is refused: {what} has {size} bytes, more than the {limit} expected")
