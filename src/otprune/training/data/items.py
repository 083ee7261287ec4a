"""What a torch Dataset yields, checked item by item and made into tensors."""

import operator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from otprune.errors import DataError
from otprune.training.data.seeds import seeded
from otprune.training.data.stream import Sample


@dataclass(frozen=True, eq=False)
class Items:
    """Those items of a map-style Dataset that `numbers` names; all are of the shape and precision of the first one.

    >>> from torch.utils.data import TensorDataset
    >>> items = Items.of(TensorDataset(torch.zeros(2, 1, 4, 4), torch.tensor([0, 3])), "test", classes=2)
    >>> len(items), items.image_shape, items[0].label
    (2, (1, 4, 4), 0)
    >>> items[1].error
    'item 1 of the test data has the label 3: with 2 classes, labels go from 0 to 1'
    """

    data: TorchDataset[Any]
    name: str
    classes: int
    numbers: Tensor
    image_shape: tuple[int, ...]
    dtype: torch.dtype
    unreadable: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: TorchDataset[Any], name: str, classes: int) -> "Items":
        """All of them; the first one is looked at."""
        try:
            count = len(data)  # type: ignore[arg-type]
        except TypeError as error:
            raise DataError(
                f"the {name} data has no length: give a map-style Dataset, with __len__ and __getitem__"
            ) from error
        if count == 0:
            raise DataError(f"there is not one {name} image")
        with seeded(0):
            first, _ = _pair(data[0], _where(0, name))
        pixels = _pixels(first, _where(0, name))
        return cls(data, name, classes, torch.arange(count), tuple(pixels.shape), pixels.dtype)

    @property
    def labels(self) -> Tensor:
        """All the same: the real ones are not known before every item has been read."""
        return torch.zeros(len(self), dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:
        number = int(self.numbers[index])
        try:
            return self._sample(self.data[number], _where(number, self.name))
        except DataError as error:  # told as a sample, since raised in a worker it would arrive as a traceback
            return Sample(None, 0, error=str(error))

    def chosen(self, indices: Tensor) -> "Items":
        """Some of them, by their places here."""
        return replace(self, numbers=self.numbers[indices])

    def _sample(self, item: Any, where: str) -> Sample:
        image, label = _pair(item, where)
        pixels = _pixels(image, where)
        if (pixels.shape, pixels.dtype) != (self.image_shape, self.dtype):
            raise DataError(
                f"{where} is {pixels.dtype} of shape {tuple(pixels.shape)}, the first one {self.dtype} of shape "
                f"{self.image_shape}: let the Dataset resize or crop them all to one shape"
            )
        return Sample(pixels, _label(label, self.classes, where))


def _where(number: int, name: str) -> str:
    return f"item {number} of the {name} data"


def _pair(item: Any, where: str) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"{where} is a {type(item).__name__}, not a pair of an image and a label")
    return item[0], item[1]


def _pixels(image: Any, where: str) -> Tensor:
    """As uint8 or float32, channels first."""
    if hasattr(image, "getbands"):
        return _from_pil(image, where)
    if not isinstance(image, Tensor):
        raise DataError(f"the image of {where} is a {type(image).__name__}, not a tensor or a PIL image")
    if image.dim() != 3 or not (image.dtype == torch.uint8 or image.is_floating_point()):
        raise DataError(
            f"the image of {where} is {image.dtype} of shape {tuple(image.shape)}, not uint8 or floating point of "
            "shape (channels, height, width)"
        )
    return image if image.dtype == torch.uint8 else image.float()


def _from_pil(image: Any, where: str) -> Tensor:
    if image.mode not in {"L", "LA", "RGB", "RGBA"}:
        raise DataError(f"the image of {where} is of mode {image.mode}: let the Dataset convert it to RGB or L")
    values = torch.from_numpy(np.array(image))
    return values.unsqueeze(0) if values.dim() == 2 else values.permute(2, 0, 1)


def _label(label: Any, classes: int, where: str) -> int:
    try:
        number = operator.index(label)
    except TypeError as error:
        raise DataError(f"{where} has the label {label!r}, which is not a whole number") from error
    if not 0 <= number < classes:
        raise DataError(f"{where} has the label {number}: with {classes} classes, labels go from 0 to {classes - 1}")
    return number
