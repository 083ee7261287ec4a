"""What the screen shows of a sweep on a cluster: the table of its runs, or in a file a line for each event."""

from rich.console import Console

from otprune.experiments.cluster.news import Began, News, Said
from otprune.experiments.runs_table import RunsTable, State


class OnScreen:
    """Follows the runs of a sweep; on a terminal only what the table cannot show is printed.

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

    def hear(self, news: News) -> None:
        """Move the table, and print a line."""
        if isinstance(news, Began):
            self._table.begins(news.run, news.where)
            self._print(str(news), always=news.attempt > 1)
        elif isinstance(news, Said):
            self._table.begins(news.run, self._table.rows[news.run].where, news.stage)
            for line in news.lines:
                self._print(line, always=news.stage == "pruned")
        else:
            self._table.stands(news.run, news.standing)

    def ended(self, run: str, error: str | None) -> None:
        """Print how, and show it."""
        self._table.ends(run, State.DONE if error is None else State.FAILED)
        self._print(f"{run}: finished" if error is None else f"{run}: failed: {error}", always=error is not None)

    def remark(self, text: str) -> None:
        """Print it."""
        self._print(text, always=True)

    def _print(self, line: str, always: bool) -> None:
        if always or not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
