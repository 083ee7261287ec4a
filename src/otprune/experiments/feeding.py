"""How to feed a model that was trained here: what its images went through, and what its outputs mean."""

from typing import Any

from otprune.training.data import AnyDataset

DATA = "data.json"


def feeding(data: AnyDataset, preparation: str) -> dict[str, Any]:
    """What an image has to go through before a model that was trained on the data, and its classes, as JSON has it.

    >>> from otprune.training.data import load
    >>> digits = load("digits")
    >>> described = feeding(digits, "pixels divided by 255")
    >>> described["image_shape"], described["preparation"]
    ([1, 8, 8], 'pixels divided by 255; then mean is subtracted and std divides, channel by channel')
    """
    return {
        "image_shape": list(data.image_shape),
        "preparation": f"{preparation}; then mean is subtracted and std divides, channel by channel",
        "mean": data.mean.tolist(),
        "std": data.std.tolist(),
        "classes": list(data.classes),
    }
