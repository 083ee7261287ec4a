"""How far downloads are: a bar with bytes, or, where nobody knows how many there are, one that moves, with the time."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from otprune.training.data import Progress as DownloadProgress


@contextmanager
def downloads(screen: Console) -> Iterator[DownloadProgress]:
    """A bar for each download; in a file, a line at its beginning.

    >>> with downloads(Console(width=120)) as downloading:
    ...     downloading("images.tar.gz", 0, 0)
    ...     downloading("images.tar.gz", 12, 12)
    fetching images.tar.gz
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), _Amount())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def downloading(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
                if not screen.is_terminal:
                    screen.print(f"fetching {what}", markup=False, highlight=False, soft_wrap=True)
            bars.update(tasks[what], completed=done, total=total or None)

        yield downloading


class _Amount(ProgressColumn):
    def __init__(self) -> None:
        super().__init__()
        self._bytes, self._speed, self._time = DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()

    def render(self, task: Task) -> RenderableType:
        if task.total is None:
            return self._time.render(task)
        shown = self._bytes.render(task)
        return shown.append("  ").append_text(self._speed.render(task)) if task.finished_speed or task.speed else shown
