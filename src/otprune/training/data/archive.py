"""Chosen files out of a .tar.gz that nobody vouches for."""

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from otprune.errors import DataError

REST_LIMIT = 16 << 20  # bytes that members nobody asked for may come to: a read-me, a list of names


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
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{archive.name} is damaged: {error}. Fetch it again.") from error
    if missing:
        raise DataError(f"{archive.name} lacks {', '.join(sorted(missing))}")


def _extracted(archive: Path, wanted: Mapping[str, int], folder: Path) -> set[str]:
    found, rest = set(), 0
    with tarfile.open(archive, "r:gz") as tar:
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


def _safe_name(member: tarfile.TarInfo, archive: Path) -> str:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name:
        raise DataError(f"{archive.name} is refused: its member {member.name!r} leads out of its folder")
    if not (member.isfile() or member.isdir()):
        raise DataError(f"{archive.name} is refused: its member {member.name!r} is neither a file nor a folder")
    return str(path)


def _require_at_most(size: int, limit: int, what: str, archive: Path) -> None:
    if size > limit:
        raise DataError(f"{archive.name} is refused: {what} has {size} bytes, more than the {limit} expected")
