"""Sweeps on a Ray cluster, from the command line, looked at while they run."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file

from tests.command_line import Done, flags
from tests.processes import command, start
from tests.ray_cluster import RayCluster
from tests.small_runs import read

LIMIT = 300.0  # seconds, for whatever is waited for: a busy machine is slow, a hang is for ever
BEGAN = re.compile(r"^(\S+): (?:started on|moved to) \S+/(\w+)", re.MULTILINE)


class Watched:
    """A function that sweeps, in a process of its own, its output in two files."""

    def __init__(self, place: Path, out: Path, sweep: Callable[..., None], *arguments: Any) -> None:
        place.mkdir()
        self.out, self._streams = out, (place / "out", place / "err")
        for stream in self._streams:
            stream.touch()
        self.process = start(_written_to, self._streams, sweep, *arguments)

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._streams[0].read_text(encoding="utf-8")

    def where(self) -> dict[str, str]:
        """The node that each run was last seen on."""
        return dict(BEGAN.findall(self.said))

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for something that must come about before the sweep is over."""
        began = time.monotonic()
        while not (found := condition()):
            alive = self.process.is_alive()
            assert alive and time.monotonic() - began < LIMIT, f"{'no end' if alive else 'the end'}: {self.ended()}"
            time.sleep(0.02)
        return found

    def ended(self) -> Done:
        """Wait for its end."""
        self.process.join(LIMIT)
        out, err = (stream.read_text(encoding="utf-8") for stream in self._streams)
        return Done(self.process.exitcode, out, err)


class Sweep(Watched):
    """`otprune sweep` as from a shell."""

    def __init__(self, place: Path, **options: object) -> None:
        line = ("sweep", *flags(options))
        super().__init__(place, Path(str(options["out"])), command, line, place / "out", place / "err")


def _written_to(streams: tuple[Path, Path], sweep: Callable[..., None], *arguments: Any) -> None:
    for number, stream in enumerate(streams, start=1):
        with stream.open("w") as file:
            os.dup2(file.fileno(), number)
    sweep(*arguments)


class Lost(NamedTuple):
    """A node that was killed, and the run that was on it."""

    node: str
    run: str


def lose_a_node(cluster: RayCluster, sweep: Watched, at_work: Callable[[Path], bool]) -> Lost:
    """Kill a node in the middle of a run that is at work, and cannot have ended, since the node is frozen first."""

    def found() -> Lost | None:
        for run, node in sweep.where().items():
            folder = sweep.out / run
            if node not in cluster.nodes or not at_work(folder) or (folder / "record.json").exists():
                continue
            cluster.freeze(node)
            if f"{run}: finished" not in sweep.said and not (folder / "record.json").exists():
                cluster.kill(node)
                return Lost(node, run)
            cluster.thaw(node)
        return None

    lost: Lost = sweep.until(found)
    return lost


def outcome(folder: Path) -> dict[str, Any]:
    """What a run came to, its weights to the last bit; times and hardware are others."""
    record = read(folder / "record.json")
    record["results"].pop("seconds")
    return {"experiment": record["experiment"], "results": record["results"], "weights": weights(folder)}


def weights(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """The tensors of each stage's model."""
    models = ("sparse", "pruned", "finetuned")
    return {
        name: {key: tensor.tolist() for key, tensor in load_file(folder / f"{name}.safetensors").items()}
        for name in models
    }
