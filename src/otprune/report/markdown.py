"""Markdown made of numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otprune.experiments.paper import Spread

NONE = "–"
WHO = ("paper", "here", "difference")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first column or columns are text and whose others are numbers.

    >>> print(markdown_table(("model", "FLOPs"), [("vgg14", "1")]))
    | model | FLOPs |
    | --- | ---: |
    | vgg14 | 1 |
    """
    lines = [header, ["---"] * texts + ["---:"] * (len(header) - texts), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured_with(provenance: Mapping[str, Any]) -> str:
    """Versions and hardware in a few words.

    >>> measured_with({"torch": "2.11.0", "python": "3.12.3", "gpu": None, "cpu": "a processor", "cores": 1})
    'torch 2.11.0, Python 3.12.3, a processor, 1 core'
    """
    cores = "1 core" if provenance["cores"] == 1 else f"{provenance['cores']} cores"
    hardware = provenance["gpu"] or provenance["cpu"]
    return f"torch {provenance['torch']}, Python {provenance['python']}, {hardware}, {cores}"


def percent(value: float | None, digits: int = 2) -> str:
    """A number of percent, or nothing.

    >>> percent(93.5), percent(None)
    ('93.50 %', '–')
    """
    return NONE if value is None else f"{value:.{digits}f} %"


def spread_text(value: Spread, digits: int = 2, unit: float = 1.0) -> str:
    """A mean and its spread, if it has one.

    >>> spread_text(Spread(113.13e6, 6.84e6), unit=1e6)
    '113.13 ± 6.84'
    """
    mean = f"{value.mean / unit:.{digits}f}"
    return mean if math.isnan(value.std) else f"{mean} ± {value.std / unit:.{digits}f}"


def compared(theirs: Spread, ours: Spread | None, digits: int = 2, unit: float = 1.0) -> tuple[str, str, str]:
    """The paper's value, ours, and the difference, bold where ours lies outside the paper's spread.

    >>> compared(Spread(93.52, 0.12), Spread(93.14, 0.05))
    ('93.52 ± 0.12', '93.14 ± 0.05', '**-0.38**')
    """
    if ours is None:
        return spread_text(theirs, digits, unit), NONE, NONE
    apart = (ours.mean - theirs.mean) / unit
    text = f"{apart:+z.{digits}f}"
    inside = abs(apart) <= theirs.std / unit + 0.5 * 10**-digits
    return spread_text(theirs, digits, unit), spread_text(ours, digits, unit), text if inside else f"**{text}**"


def difference(theirs: float | None, ours: float | None, unit: float = 1.0, digits: int = 2) -> tuple[str, str, str]:
    """The same for single numbers.

    >>> difference(14.73e6, 14728266, unit=1e6)
    ('14.73', '14.73', '+0.00')
    """
    texts = [NONE if value is None else f"{value / unit:,.{digits}f}" for value in (theirs, ours)]
    apart = NONE if theirs is None or ours is None else f"{(ours - theirs) / unit:+z.{digits}f}"
    return texts[0], texts[1], apart
