"""Which images a folder holds, and of which class each one is."""

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from otprune.errors import DataError
from otprune.reading import text_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
ILSVRC_FOLDER = Path("ILSVRC", "Data", "CLS-LOC")
ILSVRC_ANSWERS = "LOC_val_solution.csv"


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Paths below a root, with a label for each.

    The paths are one array of bytes: a million Python strings would be copied into every loading process, since
    counting references writes to them.
    """

    root: Path
    paths: NDArray[np.bytes_]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        return self.root / os.fsdecode(bytes(self.paths[index]))

    def chosen(self, indices: NDArray[np.int64]) -> "ImageFiles":
        return ImageFiles(self.root, self.paths[indices], self.labels[indices])


def find(root: Path) -> tuple[ImageFiles, ImageFiles, tuple[str, ...]]:
    """The files to train on, those to validate on, and the names of the classes: the folders in train/, sorted.

    val/ has the same folders, or is flat, as ILSVRC-2012 unpacks, with the classes in LOC_val_solution.csv.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("train/cat/1.png", "train/dog/2.png", "val/dog/3.png"):
    ...     (root / name).parent.mkdir(parents=True, exist_ok=True)
    ...     (root / name).touch()
    >>> train, val, classes = find(root)
    >>> classes, len(train), val.labels.tolist()
    (('cat', 'dog'), 2, [1])
    """
    base = next((base for base in (root, root / ILSVRC_FOLDER) if (base / "train").is_dir()), None)
    if base is None or not (base / "val").is_dir():
        raise DataError(f"{root} is no folder of images: it needs train/ and val/, each with a folder for every class")
    classes = tuple(_folders(base / "train"))
    numbers = {name: number for number, name in enumerate(classes)}
    train = _in_class_folders(base / "train", numbers)
    flat = not _folders(base / "val")
    val = (
        _by_answers(base / "val", root / ILSVRC_ANSWERS, numbers) if flat else _in_class_folders(base / "val", numbers)
    )
    return train, val, classes


def _in_class_folders(folder: Path, numbers: dict[str, int]) -> ImageFiles:
    unknown = [name for name in _folders(folder) if name not in numbers]
    if unknown:
        raise DataError(f"{folder} has {len(unknown)} classes that train/ has not: {', '.join(unknown[:5])}")
    found = [(path, numbers[name]) for name in _folders(folder) for path in _images_below(folder, folder / name)]
    return _files(folder, found)


def _by_answers(folder: Path, answers: Path, numbers: dict[str, int]) -> ImageFiles:
    if not answers.is_file():
        raise DataError(
            f"{folder} has no folder for any class, and there is no {answers} to look the classes up in: put that file "
            "there, or sort the images into folders"
        )
    classes = _answers(answers)
    found = []
    for path in _images_below(folder, folder):
        name = classes.get(Path(path).stem)
        if name not in numbers:
            raise DataError(f"{answers} names no class of train/ for {folder / path}, but {name}")
        found.append((path, numbers[name]))
    return _files(folder, found)


def _answers(path: Path) -> dict[str, str]:
    try:
        rows = list(csv.DictReader(io.StringIO(text_of(path), newline="")))
        return {row["ImageId"]: row["PredictionString"].partition(" ")[0] for row in rows}
    except (ValueError, csv.Error, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is not the list of classes that ILSVRC-2012 comes with, ImageId and PredictionString: "
            f"{error}. Get it again."
        ) from error


def _files(folder: Path, found: list[tuple[str, int]]) -> ImageFiles:
    if not found:
        raise DataError(f"{folder} has no images: none of its files ends in {', '.join(SUFFIXES)}")
    paths, labels = zip(*found, strict=True)
    return ImageFiles(folder, np.array([os.fsencode(path) for path in paths]), np.array(labels, np.int64))


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def _images_below(root: Path, folder: Path) -> list[str]:
    """Their paths from the root, sorted: the order in which a disk lists files is not the same everywhere."""
    return sorted(
        os.path.relpath(Path(place, name), root)
        for place, names in _each_once(folder)
        for name in names
        if name.lower().endswith(SUFFIXES)
    )


def _each_once(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The folders below and what is in them, links followed: one that leads back, or to the same again, is left out."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        found = Path(place).stat()
        identity = (found.st_dev, found.st_ino)
        if identity in seen:
            folders.clear()
            continue
        seen.add(identity)
        folders[:] = [name for _, name in sorted((Path(place, name).is_symlink(), name) for name in folders)]
        yield place, names
