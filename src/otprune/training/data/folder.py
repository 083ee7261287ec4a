"""Folders of images too many for memory, such as ILSVRC-2012, with the paper's augmentation."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from otprune.training.data.folder_files import ImageFiles, find
from otprune.training.data.stream import Sample, StreamedPart
from otprune.training.data.torch_data import StreamedDataset

SIDE, SHORT_SIDE = 224, 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ILSVRC-2012
# What Pillow raises on files that are damaged, or no images at all.
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


class ImageFolderDataset(StreamedDataset):
    """A folder with train/ and val/, each with a folder for every class; ILSVRC-2012 as it unpacks is one too.

    For training, images are randomly cropped and mirrored; otherwise their centre is taken. An image that cannot be
    read is named in the log and listed in `unreadable`; with `strict` it is an error.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
    ...     (root / name).mkdir(parents=True)
    ...     Image.new("RGB", (300, 260)).save(root / name / "1.png")
    >>> data = ImageFolderDataset(root, workers=0)
    >>> [(tuple(pixels.shape), labels.tolist()) for pixels, labels in data.test.batches(2)]
    [((2, 3, 224, 224), [0, 1])]
    """

    preparation = f"RGB, short side resized to {SHORT_SIDE}, centre crop of {SIDE}, pixels divided by 255"

    def __init__(self, root: Path, strict: bool = False, workers: int | None = None) -> None:
        train, val, classes = find(root)
        unreadable: dict[Path, str] = {}
        augmented, plain, tested = (
            StreamedPart(_Files(files, transform, strict, unreadable), workers)
            for files, transform in ((train, _augmentation()), (train, _centre()), (val, _centre()))
        )
        super().__init__(augmented, plain, tested, classes, torch.tensor(MEAN), torch.tensor(STD))


@dataclass(frozen=True, eq=False)
class _Files:
    """The images of files, each cut to one size."""

    files: ImageFiles
    transform: Callable[[Image.Image], Tensor]
    strict: bool
    unreadable: dict[Path, str]

    @property
    def image_shape(self) -> tuple[int, ...]:
        return 3, SIDE, SIDE

    @property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.files.labels)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        path, label = self.files.path(index), int(self.files.labels[index])
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except UNREADABLE as error:
            return self._failed(path, label, str(error) or type(error).__name__)
        return Sample(self.transform(image), label)

    def chosen(self, indices: Tensor) -> "_Files":
        return replace(self, files=self.files.chosen(indices.numpy()))

    def _failed(self, path: Path, label: int, reason: str) -> Sample:
        if not self.strict:
            return Sample(None, label, {path: reason})
        way_out = "Replace it, or do without `strict` to leave it out."
        return Sample(None, label, error=f"{path} cannot be read: {reason}. {way_out}")


def _augmentation() -> v2.Compose:
    random = v2.RandomResizedCrop(SIDE, scale=(0.08, 1), ratio=(3 / 4, 4 / 3))
    return v2.Compose([random, v2.RandomHorizontalFlip(), v2.PILToTensor()])


def _centre() -> v2.Compose:
    return v2.Compose([v2.Resize(SHORT_SIDE), v2.CenterCrop(SIDE), v2.PILToTensor()])
