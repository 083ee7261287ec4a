"""The verb that times models."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from otprune.cli.app import app
from otprune.cli.running import console, errors_in_one_line, say
from otprune.cli.targets import require_target, told_as
from otprune.deploy.bench import Settings, runs_in
from otprune.deploy.bench import bench as measured
from otprune.deploy.runtimes import DEVICES, RUNTIMES, Device, Runtime
from otprune.deploy.subjects import subjects
from otprune.experiments.folder import write_json

SHOWN_EVERY_SECONDS = 1.0  # and between two turns, since what is drawn while a model is timed is on its time


@app.command()
def bench(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, checkpoints in them, or exported files.", metavar="RUN", show_default=False
        ),
    ],
    runtime: Annotated[
        str, typer.Option(help=f"Runtimes, separated by commas: {', '.join(RUNTIMES)}.", metavar="NAMES")
    ] = "torch",
    device: Annotated[str, typer.Option(help="Where to run.", metavar="|".join(DEVICES))] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 1,
    iters: Annotated[int, typer.Option(min=1, help="Runs of each model that are timed.")] = 10_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the runtimes, pinned to as many cores.")] = 1,
    json: Annotated[
        Path | None,
        typer.Option(help="Also write everything to this file; RUN/bench.json is shown by otprune report RUN."),
    ] = None,
) -> None:
    """Time pruned models beside their unpruned originals: mean, standard deviation and percentiles of the latency.

    For example: otprune bench runs/vgg14 --runtime onnxruntime,openvino
    """
    screen = console()
    with errors_in_one_line():
        names = tuple(cast(Runtime, name.strip()) for name in runtime.split(","))
        settings = Settings(names, cast(Device, device), batch, iters, threads)
        timed = subjects(runs)
        if json is not None:
            require_target(json, ".json")
        with _progress(screen, runs_in(timed, settings)) as moved:
            record = measured(timed, settings, moved)
        screen.print(latency_table(record))
        if json is not None:
            with told_as(json, "the table above is all that is kept. Mend this, then give the same command again."):
                write_json(json, record)
            say(screen, f"everything is in {json}")


def latency_table(record: dict[str, Any]) -> Table:
    """A row for each runtime and model; how many times faster is told of medians, and of FLOPs beside it.

    >>> latency = {"mean": 2.0, "sd": 0.1, "p50": 1.9, "p99": 2.5}
    >>> record = {"models": {"net": {"original": None}}, "latencies": {"torch": {"net": latency}}}
    >>> [column.header for column in latency_table(record).columns]
    ['runtime', 'model', 'mean ± sd, ms', 'p50', 'p99', 'times faster', 'by FLOPs']
    """
    table = Table("runtime", "model", "mean ± sd, ms", "p50", "p99", "times faster", "by FLOPs")
    for runtime, found in record["latencies"].items():
        for name, own in found.items():
            mean = f"{own['mean']:.3f} ± {own['sd']:.3f}"
            ratios = _times(own.get("times_faster_p50")), _times(_by_flops(record["models"], name))
            table.add_row(runtime, Text(name), mean, f"{own['p50']:.3f}", f"{own['p99']:.3f}", *ratios)
        table.add_section()
    return table


def _by_flops(models: dict[str, dict[str, Any]], name: str) -> float | None:
    original = models.get(models[name]["original"], {})
    return original["flops"] / models[name]["flops"] if "flops" in original and "flops" in models[name] else None


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}×"


@contextmanager
def _progress(screen: Console, total: int) -> Iterator[Callable[[int], None]]:
    with Progress(console=screen, auto_refresh=False, disable=not screen.is_terminal, transient=True) as bars:
        task, shown = bars.add_task("timing", total=total), time.monotonic()

        def moved(runs: int) -> None:
            nonlocal shown
            bars.advance(task, runs)
            if time.monotonic() - shown >= SHOWN_EVERY_SECONDS:
                bars.refresh()
                shown = time.monotonic()

        yield moved
