"""ultralytics: YOLO networks from the descriptions that come with it."""

import os
from functools import partial

from torch import nn

from .subject import Subject, images

DETECTION = ("yolov5n", "yolov8n", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolo26n")
SEGMENTATION = ("yolov8n-seg", "yolo11n-seg")


def subjects() -> list[Subject]:
    """Detectors, then those that find outlines too."""
    names = (*DETECTION, *SEGMENTATION)
    return [Subject("ultralytics", name, partial(build, name), images(2, 3, 128, 128)) for name in names]


def build(name: str) -> nn.Module:
    """The network itself, without the wrapper that trains and predicts."""
    os.environ.setdefault("YOLO_VERBOSE", "false")
    from ultralytics.nn.tasks import DetectionModel, SegmentationModel

    kind = SegmentationModel if name in SEGMENTATION else DetectionModel
    model: nn.Module = kind(f"{name}.yaml", verbose=False)
    return model
