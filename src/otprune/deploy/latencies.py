"""Latencies of layers, measured once on a grid of channel counts into a table, and what networks take by it.

A network is predicted to take what its layers take. What else it does, pools and sums and moved data, is not in the
table: whoever searches with it measures a network now and then, and corrects what is predicted by the ratio.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol, TypedDict

from otprune.deploy.layers import DEPTHWISE, Layer, Shape
from otprune.errors import DeployError
from otprune.files import write_atomically
from otprune.jsons import read_object
from otprune.kinds import require_kind

FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
Points = Sequence[tuple[int, int]]


class _Entry(TypedDict):
    """A grid in the file."""

    layer: Shape
    inputs: list[int]
    outputs: list[int]
    ms: list[list[float]]


class Measure(Protocol):
    """Measures layers of one shape with different channels: the milliseconds of each."""

    def __call__(self, shape: Shape, channels: Points) -> Sequence[float]:
        """Of pairs of channels read and written, in their order."""
        ...


@dataclass(frozen=True)
class Grid:
    """Milliseconds by channels read and written, a row for each number of channels read.

    >>> Grid(inputs=[1, 3], outputs=[2, 4], ms=[[1.0, 2.0], [3.0, 4.0]]).at(2, 3)
    2.5
    """

    inputs: list[int]
    outputs: list[int]
    ms: list[list[float]]

    def at(self, inputs: int, outputs: int) -> float:
        """Between the points linearly, along both axes; outside as at the nearest edge."""
        row, down = _place(self.inputs, inputs)
        column, across = _place(self.outputs, outputs)
        upper, lower = (_between(self.ms[min(row + step, len(self.ms) - 1)], column, across) for step in (0, 1))
        return upper + (lower - upper) * down

    def covers(self, inputs: int, outputs: int) -> bool:
        """Whether it was measured up to so many channels."""
        return inputs <= self.inputs[-1] and outputs <= self.outputs[-1]


class LatencyTable:
    """Grids by shape, in a file where one is named; what is asked for and is not there is measured.

    >>> linear = Shape(batch=1, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1)
    >>> table = LatencyTable(lambda shape, points: [inputs * outputs for inputs, outputs in points])
    >>> table.cover([Layer("a", linear, 64, 16), Layer("b", linear, 16, 32)])
    >>> table.milliseconds([Layer("a", linear, 64, 16), Layer("b", linear, 8, 32)])
    1280.0
    """

    def __init__(self, measure: Measure, file: Path | None = None, key: str = "") -> None:
        self._measure, self._file, self._key = measure, file, key
        self._grids = _read(file, key) if file is not None and file.exists() else {}

    def milliseconds(self, layers: Iterable[Layer]) -> float:
        """What they take together."""
        return sum(self._grid(layer).at(layer.inputs, layer.outputs) for layer in layers)

    def cover(self, layers: Iterable[Layer]) -> None:
        """Measure what the table has not yet, up to the channels of these layers, and write it down."""
        largest: dict[Shape, tuple[int, int]] = {}
        for layer in layers:
            inputs, outputs = largest.get(layer.shape, (0, 0))
            largest[layer.shape] = max(inputs, layer.inputs), max(outputs, layer.outputs)
        missing = {shape: most for shape, most in largest.items() if not self._has(shape, *most)}
        for shape, most in missing.items():
            self._grids[shape] = measured_grid(shape, *most, self._measure)
            self._write()

    def _grid(self, layer: Layer) -> Grid:
        if layer.shape not in self._grids:
            self.cover([layer])
        return self._grids[layer.shape]

    def _has(self, shape: Shape, inputs: int, outputs: int) -> bool:
        return shape in self._grids and self._grids[shape].covers(inputs, outputs)

    def _write(self) -> None:
        if self._file is None:
            return
        others = _content(self._file) if self._file.exists() else {}
        own = [{"layer": shape.to_dict(), **vars(grid)} for shape, grid in self._grids.items()]
        write_atomically(self._file, json.dumps(others | {self._key: own}).encode())


def measured_grid(shape: Shape, inputs: int, outputs: int, measure: Measure) -> Grid:
    """Measure a shape on a grid up to these channels. More channels never take less time: what says so is noise.

    >>> linear = Shape(batch=1, size=(), kernel=(), stride=(), padding=(), dilation=(), groups=1)
    >>> measured_grid(linear, 2, 1, lambda shape, points: [2.0, 1.0])
    Grid(inputs=[1, 2], outputs=[1], ms=[[2.0], [2.0]])
    """
    rows, columns = _axis(inputs, shape.groups), _axis(outputs, shape.groups)
    if shape.groups == DEPTHWISE:  # which writes as many as it reads
        ms = accumulate(measure(shape, [(count, count) for count in rows]), max)
        return Grid(rows, rows[-1:], [[value] for value in ms])
    found = iter(measure(shape, [(row, column) for row in rows for column in columns]))
    along = [list(accumulate((next(found) for _ in columns), max)) for _ in rows]
    return Grid(rows, columns, list(accumulate(along, lambda above, row: list(map(max, above, row)))))


def _axis(most: int, groups: int) -> list[int]:
    """Numbers of channels up to the most, in whole groups."""
    step = max(groups, 1)
    return sorted({max(step, round(most * share / step) * step) for share in FRACTIONS})


def _place(axis: Sequence[int], value: int) -> tuple[int, float]:
    """The point before a value, and which part of the way to the next one it lies."""
    if value <= axis[0]:
        return 0, 0.0
    if value >= axis[-1]:
        return len(axis) - 1, 0.0
    index = bisect_right(axis, value) - 1
    return index, (value - axis[index]) / (axis[index + 1] - axis[index])


def _between(row: Sequence[float], column: int, across: float) -> float:
    return row[column] + (row[min(column + 1, len(row) - 1)] - row[column]) * across


def _read(file: Path, key: str) -> dict[Shape, Grid]:
    entries = _content(file).get(key, [])
    try:
        require_kind(entries, list[_Entry], "it")
        return {Shape.from_dict(entry.pop("layer")): _grid(entry) for entry in entries}
    except ValueError as error:
        raise _damaged(file, str(error)) from error


def _grid(entry: dict[str, Any]) -> Grid:
    """A table with a row and a column for each number of channels, in their order."""
    grid = Grid(entry["inputs"], entry["outputs"], entry["ms"])
    for axis in (grid.inputs, grid.outputs):
        if not axis or axis[0] < 1 or any(upper <= lower for lower, upper in pairwise(axis)):
            raise ValueError(f"it has channels {axis!r:.60}, which do not rise")
    if [len(row) for row in grid.ms] != [len(grid.outputs)] * len(grid.inputs):
        raise ValueError("it has another number of times than of channels")
    return grid


def _content(file: Path) -> dict[str, Any]:
    return read_object(file, lambda why: _damaged(file, why))


def _damaged(file: Path, why: str) -> DeployError:
    return DeployError(f"{file}: is no table of latencies: {why}. Delete it, and it is measured again.")
