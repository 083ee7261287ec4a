"""Plain-text tables."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned: the first to the left, numbers to the right, a rule under the header.

    >>> print(table(("layer", "kept"), [("conv1", 12), ("conv10", 3)]))
    layer   kept
    ------  ----
    conv1     12
    conv10     3
    """
    texts = [[_text(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    numeric = [all(isinstance(row[column], int | float) for row in rows) for column in range(len(header))]
    lines = [_line(row, widths, numeric) for row in texts]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()
