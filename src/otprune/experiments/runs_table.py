"""The runs of a sweep in a table that moves: where each is, how its training stands, and what became of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from otprune.experiments.pipeline import Pipeline
from otprune.experiments.screen import pruning_lines
from otprune.experiments.standing import Standing, Watch
from otprune.training.run import EpochRecord, Run

AROUND = 6  # lines of the screen that are no rows of the table
HEADER = ("run", "where", "stage", "epoch", "loss", "accuracy", "left", "state")


class State(StrEnum):
    """What a run of a sweep is at.

    >>> str(State.DONE)
    'done'
    """

    RUNNING = "running"
    FAILED = "failed"
    WAITING = "waiting"
    DONE = "done"


@dataclass
class Row:
    """What is known of a run.

    >>> Row("lam1e-4-seed0").cells()
    ('lam1e-4-seed0', '', '', '', '', '', '', 'waiting')
    """

    run: str
    where: str = ""
    state: State = State.WAITING
    stage: str = ""
    standing: Standing | None = None

    def cells(self) -> tuple[str, ...]:
        """As the table has it."""
        now = self.standing
        if now is None:
            return (self.run, self.where, self.stage, *[""] * 4, str(self.state))
        left = now.time_left if self.state is State.RUNNING else ""
        numbers = (now.epochs_done, f"{now.loss:.3f}", f"{now.accuracy:.2%}", left)
        return (self.run, self.where, self.stage, *numbers, str(self.state))


class RunsTable:
    """The table: a row for each run, or, where the screen is too low, for those that matter most.

    >>> table = RunsTable(["a", "b"])
    >>> table.stands("a", Standing("train", 1, 2, loss=0.5, accuracy=0.5, speed=10.0, left=600), where="here")
    >>> table.rows["a"].cells()
    ('a', 'here', 'train', '1/2', '0.500', '50.00%', '0:01:00', 'running')
    >>> table.counts()
    '1 running, 1 waiting'
    """

    def __init__(self, runs: Sequence[str]) -> None:
        self.rows = {run: Row(run) for run in runs}

    def begins(self, run: str, where: str, stage: str = "") -> None:
        """A run is at work somewhere."""
        row = self.rows[run]
        row.where, row.state, row.stage = where, State.RUNNING, stage or row.stage

    def stands(self, run: str, standing: Standing, where: str = "") -> None:
        """A training of a run stands so."""
        self.begins(run, where or self.rows[run].where, standing.stage)
        self.rows[run].standing = standing

    def ends(self, run: str, state: State) -> None:
        """A run is over, one way or the other."""
        self.rows[run].state = state

    def counts(self) -> str:
        """How many runs are at what."""
        found = Counter(row.state for row in self.rows.values())
        return ", ".join(f"{found[state]} {state}" for state in State if found[state])

    def shown(self, most: int) -> list[Row]:
        """At most so many rows in the order of the runs: those left out are done or waiting, if that is enough."""
        order = list(State)
        urgent = sorted(self.rows.values(), key=lambda row: order.index(row.state))[:most]
        chosen = {row.run for row in urgent}
        return [row for row in self.rows.values() if row.run in chosen]

    def drawn(self, most: int) -> Table:
        """For the screen."""
        table = Table(*HEADER, caption=self.counts(), caption_justify="left")
        for row in self.shown(most):
            table.add_row(*map(Text, row.cells()))
        return table


@contextmanager
def moving(table: RunsTable, console: Console) -> Iterator[None]:
    """Keep a table on the terminal up to date while something goes on; elsewhere it is not shown.

    >>> with moving(RunsTable(["a"]), Console()):
    ...     pass
    """
    if not console.is_terminal:
        yield
        return
    with Live(
        get_renderable=lambda: table.drawn(max(console.height - AROUND, 1)), console=console, refresh_per_second=2
    ):
        yield


class InTable:
    """Runs on this machine, told to a table; what pruning came to is printed above it.

    >>> from otprune.experiments import stages
    >>> stages.train([], InTable(RunsTable([]), Console()))
    """

    def __init__(self, table: RunsTable, console: Console) -> None:
        self._table, self._console, self._watch = table, console, Watch()

    def moved(self, pipeline: Pipeline, stage: str, run: Run) -> None:
        """Look how far the epoch is."""
        self._watch.begin(pipeline, stage, run)
        self._table.stands(pipeline.folder.name, self._watch.inside(pipeline, stage, run), where="here")

    def epoch_ended(self, pipeline: Pipeline, stage: str, run: Run, epoch: EpochRecord) -> None:
        """A training moves; where its last epoch is over it waits for what is next."""
        name = pipeline.folder.name
        self._table.stands(name, self._watch.after(pipeline, stage, run, epoch), where="here")
        if run.done:
            self._table.ends(name, State.DONE if stage == "finetune" else State.WAITING)

    def pruned(self, pipeline: Pipeline) -> None:
        """Print what is left."""
        self._table.rows[pipeline.folder.name].stage = "pruned"
        for line in pruning_lines(pipeline):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
