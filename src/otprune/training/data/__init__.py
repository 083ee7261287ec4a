"""Data to train on, by name or by folder."""

from pathlib import Path
from typing import Literal, overload

from otprune.errors import DataError
from otprune.training.data import cifar
from otprune.training.data.cifar_files import CIFAR10, CIFAR100
from otprune.training.data.download import Progress
from otprune.training.data.images import Dataset, Images, Part, split_off
from otprune.training.data.torch_data import StreamedDataset

__all__ = ["CIFARS", "AnyDataset", "Dataset", "Images", "Part", "Progress", "StreamedDataset", "load", "split_off"]

CIFARS = {"cifar10": CIFAR10, "cifar100": CIFAR100}
AnyDataset = Dataset | StreamedDataset
"""Data to train on: in memory, or read while it is used."""


def _silent(what: str, done: int, total: int) -> None:
    pass


@overload
def load(
    data: Literal["cifar10", "cifar100", "digits"], root: Path | str | None = None, *, progress: Progress = _silent
) -> Dataset: ...


@overload
def load(
    data: Path | str,
    root: Path | str | None = None,
    *,
    strict: bool = False,
    image_size: int | None = None,
    progress: Progress = _silent,
) -> AnyDataset: ...


def load(
    data: Path | str,
    root: Path | str | None = None,
    *,
    strict: bool = False,
    image_size: int | None = None,
    progress: Progress = _silent,
) -> AnyDataset:
    """Load "cifar10", "cifar100", "digits", or what a folder holds: the files of a CIFAR, or images in train/ and val/.

    Without `root`, a folder with an existing copy, the CIFARs come from the cache and are fetched into it once;
    `progress` is told how far that is. `strict` makes an unreadable image in a folder an error, and the images there
    are made `image_size` pixels wide and high, by default 224; others are not resized.

    >>> load("digits").classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    if data in CIFARS or data == "digits":
        _refuse_image_size(str(data), image_size)
    if data in CIFARS:
        return cifar.load(CIFARS[str(data)], None if root is None else Path(root), progress)
    if root is not None:
        raise DataError(f"`root` is where a copy of {' or '.join(CIFARS)} is; {data} does without")
    return _digits() if data == "digits" else _folder(Path(data), strict, image_size, progress)


def _digits() -> Dataset:
    try:
        from otprune.training.data import digits
    except ModuleNotFoundError as missing:
        raise _lacking("the digits", missing) from missing
    return digits.load()


def _folder(folder: Path, strict: bool, image_size: int | None, progress: Progress) -> AnyDataset:
    if not folder.is_dir():
        where = "" if folder.is_absolute() else ": start the command where it is a folder, or give its whole path"
        raise DataError(f"{folder} is neither a folder nor one of {', '.join(CIFARS)}, digits{where}")
    held = [name for name, files in CIFARS.items() if cifar.holds(files, folder)]
    if len(held) > 1:
        raise DataError(
            f"{folder} holds {' and '.join(held)}: say which, as in load({held[0]!r}, root={str(folder)!r})"
        )
    if held:
        _refuse_image_size(f"{held[0]} in {folder}", image_size)
        return cifar.load(CIFARS[held[0]], folder, progress)
    try:
        from otprune.training.data.folder import SIDE, ImageFolderDataset
    except ModuleNotFoundError as missing:
        raise _lacking("a folder of images", missing) from missing
    return ImageFolderDataset(folder, strict, size=SIDE if image_size is None else image_size)


def _refuse_image_size(data: str, image_size: int | None) -> None:
    if image_size is not None:
        raise DataError(
            f"image_size is for folders of images, which are resized to it; those of {data} stay as they are: "
            "leave it out"
        )


def _lacking(what: str, missing: ModuleNotFoundError) -> DataError:
    package = (missing.name or "").partition(".")[0]
    return DataError(f"reading {what} needs {package}: pip install 'otprune[train]'")
