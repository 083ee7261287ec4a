"""What the accuracy of an exported file gives cause to say."""

from collections.abc import Iterator, Mapping
from typing import Any

MOST = 0.01  # of the accuracy may be lost, or be another than the run's, before something is said


def remarks(entry: Mapping[str, Any]) -> list[str]:
    """What looks wrong in an entry of export.json, and what to do about it; nothing where nothing does.

    >>> measured = {"accuracy": 0.9, "accuracy_of_run": 0.935, "test_images": 1000}
    >>> remarks(measured | {"accuracy": 0.93})
    []
    >>> remarks(measured | {"before_quantization": {"accuracy": 0.935}})
    ['eight bits cost 3.50 points of accuracy: calibrate with more images (--calibration-images), or keep ...']
    """
    plain = entry.get("before_quantization", entry)["accuracy"]
    most = max(MOST, 1.5 / entry["test_images"])  # a single image may be anybody's
    return [*_of_the_run(plain, entry["accuracy_of_run"], most), *_of_eight_bits(plain, entry["accuracy"], most)]


def _of_the_run(plain: float, recorded: float | None, most: float) -> Iterator[str]:
    if recorded is not None and abs(plain - recorded) > most:
        yield (
            f"the run's own record has {recorded:.2%}, and not {plain:.2%}: the model's code, or the images, may have "
            f"changed since it was trained. Put them back as they were, or train again, before this file is used"
        )


def _of_eight_bits(plain: float, quantized: float, most: float) -> Iterator[str]:
    if plain - quantized > most:
        yield (
            f"eight bits cost {100 * (plain - quantized):.2f} points of accuracy: calibrate with more images "
            f"(--calibration-images), or keep single precision, without --int8"
        )
