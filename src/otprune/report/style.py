"""How figures look, and how they are written: the same bytes for the same records."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otprune.errors import OtpruneError
from otprune.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that the colour-blind tell apart (Okabe and Ito).
OT, NS, ISTA, BASELINE, PAPER, FAINT = "#0072B2", "#D55E00", "#CC79A7", "#009E73", "#222222", "#999999"
INSIDE, NS_ELSEWHERE = "#56B4E9", "#E69F00"
LOOK: Any = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "none",
    "lines.markersize": 5,
    "lines.linewidth": 1.5,
    "errorbar.capsize": 2,
    "figure.titlesize": 11.5,
    "svg.hashsalt": "otprune",  # names of clip paths and markers that do not change from one drawing to the next
}
# Hollow, and wide enough to be seen around what lies in the same place.
AROUND: dict[str, Any] = {"linestyle": ":", "fillstyle": "none", "markersize": 7.5}
NO_DATES: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
DOTS_PER_INCH = 130


@dataclass(frozen=True)
class Sketch:
    """A figure that can be drawn: the name of its file, what it shows, and how to draw it."""

    stem: str
    caption: str
    draw: Callable[[], "Figure"]


def figure(title: str, rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple["Figure", Any]:
    """An empty figure with a title and a grid of axes, as an array of two dimensions.

    >>> drawn, axes = figure("accuracy", 1, 2, (6, 3))
    >>> axes.shape
    (1, 2)
    """
    from matplotlib.figure import Figure

    made = Figure(figsize=size, layout="constrained")
    made.suptitle(title)
    return made, made.subplots(rows, columns, squeeze=False, **options)


def write(sketch: Sketch, folder: Path) -> list[Path]:
    """Draw a figure and write it as SVG and as PNG; return the files.

    >>> import tempfile
    >>> empty = Sketch("empty", "nothing", lambda: figure("nothing", 1, 1, (2, 2))[0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write(empty, Path(folder))]
    ['empty.svg', 'empty.png']
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _look():
        drawn = sketch.draw()
        return [_written(drawn, folder / f"{sketch.stem}.{kind}", kind) for kind in NO_DATES]


def legend(axes: "Axes", **options: Any) -> None:
    """A legend, if there is something in it.

    >>> legend(figure("nothing", 1, 1, (2, 2))[1][0, 0])
    """
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**options)


def legend_below(drawn: "Figure", columns: int) -> None:
    """One legend for all panels, outside of them, where it hides nothing; what several show stands there once.

    >>> legend_below(figure("nothing", 1, 1, (2, 2))[0], columns=2)
    """
    labelled = {label: handle for ax in drawn.axes for handle, label in zip(*_labelled(ax), strict=True)}
    if labelled:
        drawn.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=columns)


def _labelled(ax: "Axes") -> tuple[list[Any], list[Any]]:
    handles, labels = ax.get_legend_handles_labels()
    return handles, labels


@contextmanager
def _look() -> Iterator[None]:
    try:
        import matplotlib
    except ModuleNotFoundError as missing:
        raise OtpruneError("figures are drawn with matplotlib: pip install 'otprune[report]'") from missing
    with matplotlib.rc_context(LOOK):
        yield


def _written(drawn: "Figure", path: Path, kind: str) -> Path:
    content = BytesIO()
    drawn.savefig(content, format=kind, dpi=DOTS_PER_INCH, metadata=NO_DATES[kind])
    drawing = content.getvalue()
    if kind == "svg":  # matplotlib ends lines with spaces
        drawing = re.sub(rb"[ \t]+$", b"", drawing, flags=re.MULTILINE)
    write_atomically(path, drawing)
    return path
