"""The one store of a sweep: the folders of its runs, which tasks fetch from and send to, each file whole or not at all.

It is an actor of Ray on the driver's node, and an object like any other. A run that is begun anew, because its node was
lost, has a new attempt number; what an older attempt sends after that is refused, so a node that was thought dead and
goes on cannot overwrite the files of its successor.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from otprune.errors import TrainingError
from otprune.experiments.cluster.failing import node_of
from otprune.experiments.folder import FINETUNED, MADE_BY, PRUNED, RECORD, SPARSE
from otprune.experiments.news import Began, News
from otprune.files import write_atomically
from otprune.training.checkpoint import checkpoints
from otprune.training.failures import of_the_system
from otprune.training.holding import hold

FOLDERS = ("train", "finetune", "tensorboard")
IN_VAIN = 10  # attempts one after the other that saved nothing: then the run itself is what ends its processes

Files = Mapping[str, bytes]
"""Contents by path inside the folder of a run."""


@dataclass(frozen=True)
class Begun:
    """What a task starts with: the number of its attempt, and the files that there are of its run.

    >>> Begun(1, {"config.json": b"{}"}).attempt
    1
    """

    attempt: int
    files: Files


class BeingStopped(TrainingError):
    """A sweep lets no run begin any more."""


class Elsewhere(Exception):
    """A run is to begin on another node, since runs failed on this one after it was handed out."""


class Store:
    """The folders of some runs in the folder of a sweep; no other process can work in them until it is closed.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()), ["a"])
    >>> store.open()
    >>> first = store.begin("a", "node-1")
    >>> store.put("a", first.attempt, {"results.json": b"{}"}, gone=[])
    True
    >>> second = store.begin("a", "node-2")
    >>> dict(second.files), store.put("a", first.attempt, {"results.json": b"old"}, gone=[])
    ({'results.json': b'{}'}, False)
    >>> store.close()
    """

    def __init__(self, out: Path, runs: Sequence[str]) -> None:
        self._folders = {run: out / run for run in runs}
        self._attempts = dict.fromkeys(runs, 0)
        self._in_vain = dict.fromkeys(runs, 0)
        self._news: list[News] = []
        self._stopping = False
        self._avoided: set[str] = set()
        self._held = ExitStack()

    def open(self) -> None:
        """Keep other processes out."""
        for folder in self._folders.values():
            self._held.callback(hold(folder))

    def stop(self) -> None:
        """Let no run begin any more."""
        self._stopping = True

    def avoid(self, node: str) -> None:
        """Let no run begin on a node that was handed out before this was known."""
        self._avoided.add(node)

    def close(self) -> None:
        """Let other processes in, and refuse whatever still comes."""
        self._attempts = dict.fromkeys(self._attempts, 0)
        self._held.close()

    def begin(self, run: str, where: str, known: Collection[str] = ()) -> Begun:
        """Begin a run, or begin it anew: the attempts before are over.

        On a node to be avoided it begins only if that was `known` when it was handed out: then there is no other.
        """
        folder = self._folders[run]
        self._require_beginning(run)
        if node_of(where) in self._avoided - set(known):
            raise Elsewhere(f"{run} is not begun on {where}")
        self._attempts[run] += 1
        self._in_vain[run] += 1
        self._news.append(Began(run, where, self._attempts[run], reached(folder)))
        return Begun(self._attempts[run], {name: (folder / name).read_bytes() for name in names(folder)})

    def put(self, run: str, attempt: int, changed: Files, gone: Sequence[str]) -> bool:
        """Write files of a run and remove others; False, and nothing is done, if the attempt is over.

        Models come after what was measured of them, as where a run is on this machine, and the record comes last.
        """
        if not self._is_current(run, attempt):
            return False
        try:
            self._write(run, changed, gone)
        except OSError as error:
            raise TrainingError(
                f"{of_the_system(error)}. What was saved before is kept: mend this on the machine that the sweep was "
                f"started on, then give the same command again."
            ) from error
        if any(order(name) for name in changed):
            self._in_vain[run] = 0
        return True

    def tell(self, attempt: int, news: News) -> None:
        """Pass something on to who asked for the sweep."""
        if self._is_current(news.run, attempt):
            self._news.append(news)

    def news(self) -> list[News]:
        """What was told since the last time."""
        told, self._news = self._news, []
        return told

    def _write(self, run: str, changed: Files, gone: Sequence[str]) -> None:
        for name in sorted(changed, key=order):
            write_atomically(self._path(run, name), changed[name])
        for name in gone:
            self._path(run, name).unlink(missing_ok=True)

    def _is_current(self, run: str, attempt: int) -> bool:
        return 0 < attempt == self._attempts[run]

    def _path(self, run: str, name: str) -> Path:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise TrainingError(f"{name} is no file of the run {run}: it lies outside of its folder")
        path = self._folders[run] / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _require_beginning(self, run: str) -> None:
        if self._stopping:
            raise BeingStopped(f"{self._folders[run]}: the sweep is being stopped")
        if self._in_vain[run] >= IN_VAIN:
            raise TrainingError(
                f"{self._folders[run]}: its process ended {IN_VAIN} times before it had saved anything. "
                f"Ray's logs say why; too little memory for what runs side by side would be a reason, and a larger "
                f"--cpus-per-run or --gpus-per-run would mend it. Then give the same command again."
            )


def names(folder: Path) -> list[str]:
    """The files of a run that a task needs to go on with it, by path inside its folder.

    >>> names(Path("nowhere"))
    []
    """
    found = [*folder.glob("*"), *(path for inside in FOLDERS for path in (folder / inside).rglob("*"))]
    inside = (path.relative_to(folder) for path in found if path.is_file())
    return [path.as_posix() for path in inside if not path.name.startswith(".")]


def order(name: str) -> int:
    """Where a file comes among others: measurements, checkpoints, the models of the stages, the record.

    >>> sorted(["record.json", "pruned.safetensors", "train/at-1.safetensors", "results.json"], key=order)
    ['results.json', 'train/at-1.safetensors', 'pruned.safetensors', 'record.json']
    """
    models = list(MADE_BY)
    if name == RECORD:
        return len(models) + 2
    if name in models:
        return models.index(name) + 2
    return int(name.endswith(".safetensors"))


def reached(folder: Path) -> str:
    """The last thing that a run has saved, by path inside its folder; nothing where it has to begin.

    >>> reached(Path("nowhere"))
    ''
    """
    finetuning, training = (checkpoints(folder / name)[-1:] for name in ("finetune", "train"))
    saved = [folder / FINETUNED, *finetuning, folder / PRUNED, folder / SPARSE, *training]
    return next((path.relative_to(folder).as_posix() for path in saved if path.exists()), "")
