"""Times as people write them: a number and a unit."""

import re

from otprune.errors import TrainingError

MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "μs": 1e-3}
WRITTEN = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-zµμ]+)", re.IGNORECASE)


def milliseconds(text: str) -> float:
    """A time in milliseconds.

    >>> milliseconds("1.5ms"), milliseconds("800 us"), milliseconds("0.01s")
    (1.5, 0.8, 10.0)
    >>> milliseconds("1.5")
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: pruning.latency must be a time with its unit, such as 1.5ms or 800us, not '1.5'
    """
    found = WRITTEN.fullmatch(text.strip())
    try:
        number, unit = found.groups() if found else ("", "")
        return float(number) * MILLISECONDS[unit]
    except (ValueError, KeyError):
        raise TrainingError(
            f"pruning.latency must be a time with its unit, such as 1.5ms or 800us, not {text!r}"
        ) from None
