"""Folders of images too many for memory, such as ILSVRC-2012, with the paper's augmentation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from otprune.errors import DataError
from otprune.training.data.folder_files import ImageFiles, find
from otprune.training.data.stream import Sample, StreamedPart
from otprune.training.data.torch_data import StreamedDataset
from otprune.training.data.unreadable import UNREADABLE

SIDE = 224  # unless another one is asked for
MARGIN = 256 / 224  # of the short side over what is cut out of its centre
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ILSVRC-2012


class ImageFolderDataset(StreamedDataset):
    """A folder with train/ and val/, each with a folder for every class; ILSVRC-2012 as it unpacks is one too.

    For training, images are randomly cropped and mirrored; otherwise their centre is taken. They come out `size` pixels
    wide and high. An image that cannot be read is named in the log and listed in `unreadable`; with `strict` it is an
    error.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
    ...     (root / name).mkdir(parents=True)
    ...     Image.new("RGB", (300, 260)).save(root / name / "1.png")
    >>> data = ImageFolderDataset(root, workers=0)
    >>> [(tuple(pixels.shape), labels.tolist()) for pixels, labels in data.test.batches(2)]
    [((2, 3, 224, 224), [0, 1])]
    """

    def __init__(self, root: Path, strict: bool = False, workers: int | None = None, size: int = SIDE) -> None:
        if size < 1:
            raise DataError(f"image_size must be at least 1, not {size}")
        train, val, classes = find(root)
        unreadable: dict[Path, str] = {}
        augmented, plain, tested = (
            StreamedPart(_Files(files, transform, size, strict, unreadable), workers)
            for files, transform in ((train, _augmentation(size)), (train, _centre(size)), (val, _centre(size)))
        )
        super().__init__(augmented, plain, tested, classes, torch.tensor(MEAN), torch.tensor(STD))

    @property
    def preparation(self) -> str:
        """What is done to an image, in words."""
        size = self.image_shape[-1]
        return f"RGB, short side resized to {_short_side(size)}, centre crop of {size}, pixels divided by 255"


@dataclass(frozen=True, eq=False)
class _Files:
    """The images of files, each cut to one size."""

    files: ImageFiles
    transform: Callable[[Image.Image], Tensor]
    size: int
    strict: bool
    unreadable: dict[Path, str]

    @property
    def image_shape(self) -> tuple[int, ...]:
        return 3, self.size, self.size

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


def _augmentation(size: int) -> v2.Compose:
    random = v2.RandomResizedCrop(size, scale=(0.08, 1), ratio=(3 / 4, 4 / 3))
    return v2.Compose([random, v2.RandomHorizontalFlip(), v2.PILToTensor()])


def _centre(size: int) -> v2.Compose:
    return v2.Compose([v2.Resize(_short_side(size)), v2.CenterCrop(size), v2.PILToTensor()])


def _short_side(size: int) -> int:
    return round(MARGIN * size)
