"""The commands that are killed, and what comes of them when nobody disturbs them."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from otprune.experiments import stages
from otprune.training.loop import SAVE_EVERY_SECONDS
from tests.chaos.naming import generic
from tests.processes import command, finish

HERE = ("--device", "cpu", "--out")
NET = ("--model", "tests.small_runs:net", "--data", "digits", "--proximal", "--epochs", "2", "--finetune-rate", "0.01")
OFTEN = 0.02  # seconds between checkpoints, of which a training of a second would else write none but the last
OPERATIONS = {"open": ("write", 0), "os.rename": ("rename", 1), "os.remove": ("remove", 0)}  # and which argument it is
VERBS = ("train", "prune", "finetune", "sweep", "export")


@dataclass(frozen=True)
class Case:
    """A command, but for the folder that ends it, and the case that left the folder that it begins with."""

    arguments: tuple[str, ...]
    after: str | None = None

    @property
    def verb(self) -> str:
        return self.arguments[0]


@dataclass(frozen=True)
class Usual:
    """An undisturbed run of a case: where it began and ended, how long it took, and what it did with which files."""

    case: Case
    before: Path | None
    folder: Path
    seconds: float
    operations: tuple[str, ...]


CASES = {
    "train": Case(("train", *NET[:-2], "--lam", "0.3", *HERE)),
    "prune": Case(("prune", *HERE), after="train"),
    "finetune": Case(("finetune", "--finetune-epochs", "2", "--finetune-rate", "0.01", *HERE), after="prune"),
    "sweep": Case(("sweep", *NET, "--lam", "0.2,0.3", "--finetune-epochs", "1", *HERE)),
    "export-safetensors": Case(("export", "--to", "safetensors"), after="finetune"),
    "export-torch": Case(("export", "--to", "torch"), after="export-safetensors"),
    "export-onnx": Case(("export", "--to", "onnx"), after="export-safetensors"),
    "export-openvino": Case(("export", "--to", "openvino"), after="export-safetensors"),
}


def undisturbed(place: Path, names: Iterable[str] = tuple(CASES)) -> dict[str, Usual]:
    """Run every case to its end, each in a folder of its own."""
    found: dict[str, Usual] = {}
    for name in names:
        found[name] = _undisturbed(place, CASES[name], name, found)
    return found


def _undisturbed(place: Path, case: Case, name: str, others: Mapping[str, Usual]) -> Usual:
    before = None if case.after is None else others[case.after].folder
    folder, operations = begun(before, place / name), place / f"{name}.operations"
    begin = time.perf_counter()
    finish(_noting, (*case.arguments, str(folder)), place / "out", place / "err", folder, operations)
    seconds = time.perf_counter() - begin
    return Usual(case, before, folder, seconds, tuple(operations.read_text(encoding="utf-8").splitlines()))


def begun(before: Path | None, folder: Path) -> Path:
    """A folder for a case to work in."""
    if before is not None:
        shutil.copytree(before, folder)
    return folder


def telling(arguments: tuple[str, ...], out: Path, err: Path, folder: Path, told: Connection) -> None:
    """The command line, in a process of its own, which tells what it is about to do with which file in a folder."""
    _save_often()
    tell_of(folder, lambda text: told.send_bytes(text.encode()))
    command(arguments, out, err)


def _noting(arguments: tuple[str, ...], out: Path, err: Path, folder: Path, operations: Path) -> None:
    """The same, told to a file."""
    _save_often()
    with operations.open("w", buffering=1, encoding="utf-8") as file:
        tell_of(folder, lambda text: file.write(f"{text}\n"))
        command(arguments, out, err)


def tell_of(folder: Path, tell: Callable[[str], object]) -> None:
    """Tell, from now on and until this process ends, what it is about to do with files in a folder."""
    sys.addaudithook(partial(_tell, folder, tell))


def _save_often() -> None:
    """Change the defaults of the functions that the verbs call."""
    for stage in (stages.run, stages.train, stages.finetune):
        stage.__defaults__ = tuple(
            OFTEN if value == SAVE_EVERY_SECONDS else value for value in stage.__defaults__ or ()
        )


def _tell(folder: Path, tell: Callable[[str], object], event: str, arguments: tuple[Any, ...]) -> None:
    """Python itself reports what it is about to do."""
    if event not in OPERATIONS or (event == "open" and not set("wxa+") & set(arguments[1] or "")):
        return
    what, which = OPERATIONS[event]
    path = Path(str(arguments[which]))
    if path.is_relative_to(folder):
        tell(f"{what} {generic(path.name)}")
