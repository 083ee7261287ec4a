"""What the demo shows: progress bars, the plan, one table of results."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


class Step(NamedTuple):
    """One step of a training: how far it is, and how well it goes."""

    done: int
    total: int
    loss: float
    accuracy: float


class Row(NamedTuple):
    """One line of the table: a model at one point of its way."""

    model: str
    accuracy: float
    parameters: int
    flops: int
    macs: int
    latency_ms: float


class Screen:
    """Shows the demo on a console as it goes.

    >>> import sys
    >>> Screen(Console(file=sys.stdout, width=80)).open(train_images=3, test_images=1)
    Welcome to otprune! A network learns to read hand-written digits,
    then everything it does not need is taken out.
    3 images to learn from, 1 to be tested on.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, train_images: int, test_images: int) -> None:
        """Say what is about to happen."""
        self._console.print("[bold]Welcome to otprune![/] A network learns to read hand-written digits,")
        self._console.print("then everything it does not need is taken out.")
        self._console.print(f"{train_images} images to learn from, {test_images} to be tested on.\n")

    def watch(self, title: str, steps: Iterable[Step]) -> None:
        """Go through the steps of a training with a progress bar."""
        with _progress(self._console) as progress:
            bar = progress.add_task(title, total=None, loss=float("nan"), accuracy=0.0)
            for step in steps:
                progress.update(
                    bar, completed=step.done, total=step.total, loss=step.loss, accuracy=100 * step.accuracy
                )

    def show_plan(self, plan: object) -> None:
        """Print the plan as it prints itself."""
        self._console.print(f"\n{plan}\n", highlight=False, markup=False, soft_wrap=True)

    def show_results(self, rows: Sequence[Row], seconds: float, latency_batch: int) -> None:
        """Print the table, and what was gained and lost, whichever it is."""
        self._console.print()
        self._console.print(_table(rows, latency_batch))
        self._console.print(f"{summary(rows[0], rows[-1])} All in {seconds:.0f} s.", highlight=False)


def summary(before: Row, after: Row) -> str:
    """The gain and the price in one sentence.

    >>> before = Row("before", accuracy=0.99, parameters=90, flops=900, macs=800, latency_ms=3.0)
    >>> after = Row("after", accuracy=0.98, parameters=30, flops=200, macs=180, latency_ms=2.0)
    >>> summary(before, after)
    '4.5× fewer FLOPs, 3.0× fewer parameters, 1.5× the speed, accuracy -1.00 points.'
    """
    return (
        f"{before.flops / after.flops:.1f}× fewer FLOPs, {before.parameters / after.parameters:.1f}× fewer parameters, "
        f"{before.latency_ms / after.latency_ms:.1f}× the speed, "
        f"accuracy {100 * (after.accuracy - before.accuracy):+.2f} points."
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<26}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:6.4f}  accuracy {task.fields[accuracy]:6.2f} %"),
        TimeRemainingColumn(),
        console=console,
    )


def _table(rows: Iterable[Row], latency_batch: int) -> Table:
    table = Table(caption=f"accuracy on the test images; latency: CPU median, {latency_batch} images on one thread")
    table.add_column("")
    for title in ("accuracy", "parameters", "FLOPs", "MACs", "latency"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(row.model, *cells(row))
    return table


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """A row's numbers as a person reads them.

    >>> cells(Row("small", accuracy=0.9911, parameters=12345, flops=678900, macs=600000, latency_ms=1.234))
    ('99.11 %', '12,345', '678,900', '600,000', '1.23 ms')
    """
    return (
        f"{100 * row.accuracy:.2f} %",
        f"{row.parameters:,}",
        f"{row.flops:,}",
        f"{row.macs:,}",
        f"{row.latency_ms:.2f} ms",
    )
