"""Files of data: CIFAR's own, archives, sheets and labels of the npm package, images, the list of ILSVRC's classes."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from otprune.training.data import sheets
from otprune.training.data.archive import extract
from otprune.training.data.cifar_files import CIFAR10, CIFAR100, read
from otprune.training.data.folder import ImageFolderDataset
from tests.archives import silent, tar_of
from tests.parser_fuzz.target import Target, put
from tests.test_cifar_data import COUNT, small


def cifar() -> Target:
    """One of the files, beside others that are whole."""
    tiny, contents = small(CIFAR100)

    def read_one(content: bytes, number: int, folder: Path) -> None:
        for name, whole in contents.items():
            put(whole, folder / name)
        put(content, folder / list(contents)[number])
        read(tiny, folder)

    return Target("bytes", list(contents.values()), read_one)


def archive() -> Target:
    """The files that are wanted out of it."""
    wanted = {"data/a.bin": 64, "data/b.bin": 64}
    samples = [tar_of({"data/a.bin": b"a" * 64, "data/b.bin": b"b" * 10, "data/readme.html": b"<html>"})]

    def extract_all(content: bytes, number: int, folder: Path) -> None:
        extract(put(content, folder / "data.tar.gz"), wanted, folder)
        assert {path.name for path in folder.iterdir()} <= {"data.tar.gz", "a.bin", "b.bin"}

    return Target("tar", samples, extract_all)


def sheet() -> Target:
    """In a package whose other files are whole."""
    return Target(
        "png", [_sheet(seed) for seed in (0, 1)], lambda content, number, folder: _unpack(folder, sheet=content)
    )


def labels() -> Target:
    """In a package whose other files are whole."""
    return Target("json", [_labels(COUNT)], lambda content, number, folder: _unpack(folder, labels=content))


def image() -> Target:
    """One of the images of a folder, cut to size."""
    samples = [_image(suffix) for suffix in IMAGES]

    def read_it(content: bytes, number: int, folder: Path) -> None:
        for part in ("train", "val"):
            for old in (folder / part / "cat").glob("*"):
                old.unlink()
            put(content, folder / part / "cat" / f"1.{IMAGES[number]}")
        data = ImageFolderDataset(folder, strict=True, workers=0, size=8)
        assert all(pixels.shape[1:] == (3, 8, 8) for pixels, _ in data.test.batches(1))

    return Target("image", samples, read_it)


def answers() -> Target:
    """The list of classes beside images that are not in folders."""
    text = b"ImageId,PredictionString\nval_1,cat 1 2 3 4\nval_2,dog 5 6 7 8\n"

    def look_up(content: bytes, number: int, folder: Path) -> None:
        for name in ("train/cat/1.png", "train/dog/2.png", "val/val_1.png", "val/val_2.png"):
            put(b"", folder / name)
        put(content, folder / "LOC_val_solution.csv")
        ImageFolderDataset(folder, workers=0)

    return Target("bytes", [text], look_up)


IMAGES = ["png", "jpg", "bmp", "ppm", "tif", "webp"]
TINY, _ = small(CIFAR10)
SHEETS = {f"package/{Path(file.name).stem}.png" for file in TINY.files}


def _unpack(folder: Path, sheet: bytes | None = None, labels: bytes | None = None) -> None:
    whole = {name: _sheet(0) for name in SHEETS}
    whole[f"package/{sheets.TRAIN_LABELS}"] = _labels(COUNT * len(TINY.train))
    whole[f"package/{sheets.TEST_LABELS}"] = labels if labels is not None else _labels(COUNT)
    if sheet is not None:
        whole["package/test_batch.png"] = sheet
    sheets.unpack(put(tar_of(whole), folder / "package.tgz"), TINY, folder, silent)


def _labels(count: int) -> bytes:
    return json.dumps([number % 10 for number in range(count)]).encode()


@functools.cache
def _sheet(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (COUNT, 1024, 3), dtype=np.uint8)
    return _written(Image.fromarray(pixels), "PNG")


def _image(suffix: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 16, 3), dtype=np.uint8)
    return _written(Image.fromarray(pixels), {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper()))


def _written(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()
