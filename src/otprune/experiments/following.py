"""What the screen shows of runs in other processes: a table of them, or in a file a line for each event."""

import time

from rich.console import Console

from otprune.experiments.news import Began, News, Said, Stood
from otprune.experiments.runs_table import RunsTable, State
from otprune.experiments.screen import LINE_EVERY_SECONDS
from otprune.experiments.telling import PRUNED, RECORDED


class OnScreen:
    """Follows runs; on a terminal only what the table cannot show is printed.

    >>> table = RunsTable(["a"])
    >>> follower = OnScreen(table, Console(width=120))
    >>> follower.hear(Began("a", "node-1", attempt=1))
    a: started on node-1
    >>> follower.ended("a", None)
    a: finished
    >>> table.counts()
    '1 done'
    """

    def __init__(self, table: RunsTable, console: Console) -> None:
        self._table, self._console = table, console
        self._printed_at: dict[str, float] = {}

    def hear(self, news: News) -> None:
        """Move the table, and print a line."""
        if isinstance(news, Began):
            self._table.begins(news.run, news.where)
            self._print(news.run, str(news), always=news.attempt > 1)
        elif isinstance(news, Said):
            self._table.begins(news.run, self._table.rows[news.run].where, news.stage)
            for line in news.lines:
                self._print(news.run, line, always=news.stage in (PRUNED, RECORDED))
        else:
            self._table.stands(news.run, news.standing)
            self._print_now_and_then(news)

    def ended(self, run: str, error: str | None) -> None:
        """Print how, and show it."""
        self._table.ends(run, State.DONE if error is None else State.FAILED)
        self._print(run, f"{run}: finished" if error is None else f"{run}: failed: {error}", always=error is not None)

    def remark(self, text: str) -> None:
        """Print it."""
        self._print("", text, always=True)

    def _print_now_and_then(self, news: Stood) -> None:
        """Of a run that nothing was printed of for a minute, so that a file tells that it gets on."""
        if time.monotonic() - self._printed_at.get(news.run, 0.0) >= LINE_EVERY_SECONDS:
            self._print(news.run, f"{news.standing.stage} {news.run}: {news.standing}", always=False)

    def _print(self, run: str, line: str, always: bool) -> None:
        self._printed_at[run] = time.monotonic()
        if always or not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
