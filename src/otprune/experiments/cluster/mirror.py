"""The folder of a run on a node, and what of it the store has."""

from collections.abc import Callable, Sequence
from pathlib import Path

from otprune.experiments.cluster.store import Files, names

Send = Callable[[Files, Sequence[str]], bool]
Stamp = tuple[int, int, int]


class Superseded(Exception):
    """The run has been begun on another node meanwhile, and what is done here is not wanted any more."""


class Mirror:
    """Fetches the files of a run into a fresh folder, and sends what has changed in it since.

    >>> import tempfile
    >>> sent: list[object] = []
    >>> mirror = Mirror(Path(tempfile.mkdtemp(), "run"), lambda changed, gone: not sent.append((changed, gone)))
    >>> mirror.fetch({"config.json": b"{}", "train/at-00001-0000000.safetensors": b"old"})
    >>> (mirror.folder / "train/at-00001-0000000.safetensors").unlink()
    >>> _ = (mirror.folder / "sparse.safetensors").write_bytes(b"new")
    >>> mirror.send_saved()
    >>> sent
    [({'sparse.safetensors': b'new'}, ['train/at-00001-0000000.safetensors'])]
    """

    def __init__(self, folder: Path, send: Send) -> None:
        self.folder, self._send = folder, send
        self._there: dict[str, Stamp] = {}

    def fetch(self, files: Files) -> None:
        """Lay the store's files into the folder, which nobody else knows yet."""
        self.folder.mkdir(parents=True)
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._there = self._here()

    def send(self) -> None:
        """Send every file that is new or another since the last time, and the names of those that are gone."""
        here = self._here()
        changed = [name for name, stamp in here.items() if self._there.get(name) != stamp]
        gone = [name for name in self._there if name not in here]
        if not changed and not gone:
            return
        if not self._send({name: (self.folder / name).read_bytes() for name in changed}, gone):
            raise Superseded(f"{self.folder.name} is begun on another node")
        self._there = here

    def send_saved(self) -> None:
        """Send if a checkpoint or a model was saved since: cheap enough to be called every second."""
        here = self._here()
        if any(name.endswith(".safetensors") and self._there.get(name) != stamp for name, stamp in here.items()):
            self.send()

    def _here(self) -> dict[str, Stamp]:
        return {name: _stamp(self.folder / name) for name in names(self.folder)}


def _stamp(path: Path) -> Stamp:
    """Files are replaced, not written over, so that a new one is another inode even within a tick of the clock."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
