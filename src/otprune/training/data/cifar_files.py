"""The official binary files of CIFAR-10 and CIFAR-100: what they are called, what is in them, how to read them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from otprune.errors import DataError
from otprune.training.data.download import Remote
from otprune.training.data.images import Dataset, Images

SIDE = 32
PIXEL_BYTES = 3 * SIDE * SIDE

Records = NDArray[np.uint8]
"""A row for each image: its label bytes, then its red, green and blue pixels."""


@dataclass(frozen=True)
class BinaryFile:
    """A file of records; `sha256` are the digests it may have, the official one first."""

    name: str
    count: int
    sha256: tuple[str, ...]


@dataclass(frozen=True)
class Cifar:
    """One of the two datasets; an image's class is the last of its label bytes."""

    title: str
    folder: str
    archive: Remote
    train: tuple[BinaryFile, ...]
    test: BinaryFile
    label_bytes: int
    classes: tuple[str, ...]
    on_npm: bool = False

    @property
    def files(self) -> tuple[BinaryFile, ...]:
        return (*self.train, self.test)

    @property
    def record_bytes(self) -> int:
        return self.label_bytes + PIXEL_BYTES


CIFAR10 = Cifar(
    title="CIFAR-10",
    folder="cifar-10-batches-bin",
    archive=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        size=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    train=(
        BinaryFile("data_batch_1.bin", 10_000, ("cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",)),
        BinaryFile("data_batch_2.bin", 10_000, ("a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",)),
        BinaryFile("data_batch_3.bin", 10_000, ("bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",)),
        BinaryFile("data_batch_4.bin", 10_000, ("014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",)),
        BinaryFile("data_batch_5.bin", 10_000, ("755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",)),
    ),
    test=BinaryFile("test_batch.bin", 10_000, ("8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",)),
    label_bytes=1,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    on_npm=True,
)

_FINE_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

# The second digests are those of a copy with its records in another order. Its class sizes, mean and deviation are
# those commonly published for CIFAR-100; that every pixel agrees cannot be told without the official files.
CIFAR100 = Cifar(
    title="CIFAR-100",
    folder="cifar-100-binary",
    archive=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        size=168_513_733,
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    train=(
        BinaryFile(
            "train.bin",
            50_000,
            (
                "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                "c61a8f5f2f79763e0125e1534d8a1569ad79b846b70d6d5a13b2d018dc24ba7c",
            ),
        ),
    ),
    test=BinaryFile(
        "test.bin",
        10_000,
        (
            "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            "f7b7b6da3506a4e9336e694b61cf6fed6b73f669c582a3b4e1330f8410a3918f",
        ),
    ),
    label_bytes=2,
    classes=tuple(_FINE_NAMES.split()),
)


def read(cifar: Cifar, folder: Path) -> Dataset:
    """Read all files of the dataset from the folder they are in; every one is checked against its digest.

    >>> import tempfile
    >>> read(CIFAR10, Path(tempfile.mkdtemp()))
    Traceback (most recent call last):
    otprune.errors.DataError: .../data_batch_1.bin: no such file. ...
    """
    train = np.concatenate([checked_records(cifar, file, folder) for file in cifar.train])
    test = checked_records(cifar, cifar.test, folder)
    return Dataset.of(_images(cifar, train), _images(cifar, test), cifar.classes)


def checked_records(cifar: Cifar, file: BinaryFile, folder: Path) -> Records:
    """The records of one file, which is what it ought to be to the last bit."""
    path, size = folder / file.name, file.count * cifar.record_bytes
    way_out = f"Delete it and fetch {cifar.title} again, or unpack {cifar.archive.url} there."
    if not path.is_file():
        raise DataError(f"{path}: no such file. Unpack {cifar.archive.url} there.")
    found = path.stat().st_size
    if found != size:
        raise DataError(f"{path} has {found} bytes, not the {size} of {cifar.title}'s {file.name}. {way_out}")
    content = np.fromfile(path, np.uint8)
    digest = hashlib.sha256(content.data).hexdigest()
    if digest not in file.sha256:
        raise DataError(
            f"{path} is not {cifar.title}'s {file.name}: its SHA-256 is {digest}, expected {file.sha256[0]}. {way_out}"
        )
    return content.reshape(file.count, cifar.record_bytes)


def _images(cifar: Cifar, records: Records) -> Images:
    pixels = np.ascontiguousarray(records[:, cifar.label_bytes :]).reshape(-1, 3, SIDE, SIDE)
    labels = records[:, cifar.label_bytes - 1].astype(np.int64)
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels))
