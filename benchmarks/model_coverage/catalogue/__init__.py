"""The models that are tried, library by library."""

from collections.abc import Callable

from . import segmentation, timm_models, torchvision_models, transformers_models, yolo
from .subject import Subject

LIBRARIES: dict[str, Callable[[], list[Subject]]] = {
    "torchvision": torchvision_models.subjects,
    "timm": timm_models.subjects,
    "transformers": transformers_models.subjects,
    "segmentation-models-pytorch": segmentation.subjects,
    "ultralytics": yolo.subjects,
}


def all_subjects() -> list[Subject]:
    """Every model there is, one library after the other, small models first where their sizes are known."""
    return [subject for subjects in LIBRARIES.values() for subject in subjects()]


def subject_called(key: str) -> Subject:
    """The model of that key, such as `timm:resnet10t`."""
    library, _, name = key.partition(":")
    return next(subject for subject in LIBRARIES[library]() if subject.name == name)
