"""The pipeline as verbs: whole, for many runs, and stage by stage."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from otprune.cli.app import app
from otprune.cli.flags import NUMBERS, RUN, Config, Device, Out, numbers, with_settings
from otprune.cli.running import console, errors_in_one_line, opened, reports, require_begun, say
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.feeding import DATA
from otprune.experiments.fields import Flat
from otprune.experiments.folder import FINETUNED, MADE_BY, SCRATCH
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.experiments.screen import broken, results_table
from otprune.experiments.settings import resolved
from otprune.report.summary import JSON, MARKDOWN, over_seeds, summarize
from otprune.training.failures import RunsFailed

Stage = Callable[[Sequence[Pipeline], Report], object]


@app.command()
@with_settings("", "training", "pruning", "finetuning")
def run(out: Out, given: Flat, config: Config = None, device: Device = "auto") -> None:
    """Train with sparsity, prune, recalibrate and fine-tune: the whole pipeline, resumable.

    For example: otprune run --model vgg14 --data cifar10 --lam 1e-4 --out runs/vgg14
    """
    with errors_in_one_line(given):
        _run_all({out: resolved(given, config, out)}, device)
        _tell_model(out / FINETUNED)


@app.command()
@with_settings("", "training", "pruning", "finetuning", without=("training.lam", "training.seed"))
def sweep(
    out: Annotated[
        Path, typer.Option(help="Folder of the sweep; each run has a folder of its own inside.", rich_help_panel=RUN)
    ],
    given: Flat,
    lam: Annotated[
        str | None,
        typer.Option(help="The λ to train with, separated by commas.", metavar=NUMBERS, rich_help_panel=RUN),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each λ with so many seeds.", rich_help_panel=RUN)] = 1,
    together: Annotated[
        int, typer.Option(min=1, help="Train at most so many side by side.", rich_help_panel=RUN)
    ] = stages.TOGETHER,
    config: Config = None,
    device: Device = "auto",
) -> None:
    """Run the pipeline for several λ and seeds, side by side on one device; writes summary.md and summary.json.

    For example: otprune sweep --model vgg14 --data cifar10 --lam 1e-5,1e-4 --seeds 3 --out runs/sweep
    """
    with errors_in_one_line(given):
        lams = _lams(lam, resolved(given, config).training.lam)
        runs = {
            out / f"lam{text}-seed{seed}": given | {"training.lam": value, "training.seed": seed}
            for text, value in lams.items()
            for seed in range(seeds)
        }
        experiments = {folder: resolved(asked, config, folder) for folder, asked in runs.items()}
        try:
            _run_all(experiments, device, together)
        except RunsFailed:
            _summarize(out)  # of those that are finished
            raise
        _summarize(out)


@app.command()
@with_settings("", "training")
def train(out: Out, given: Flat, config: Config = None, device: Device = "auto") -> None:
    """Train with sparsity; writes sparse.safetensors."""
    with errors_in_one_line(given):
        _one_stage(stages.train, out, resolved(given, config, out), device, then=("prune",))


@app.command()
@with_settings("pruning")
def prune(out: Out, given: Flat, config: Config = None, device: Device = "auto") -> None:
    """Prune the trained model and re-estimate its batch-norm statistics; writes plan.json and pruned.safetensors."""
    with errors_in_one_line(given):
        require_begun(out)
        _one_stage(_prune_all, out, resolved(given, config, out), device, then=("finetune", "scratch"))


@app.command()
@with_settings("finetuning")
def finetune(out: Out, given: Flat, config: Config = None, device: Device = "auto") -> None:
    """Fine-tune the pruned model; writes finetuned.safetensors."""
    with errors_in_one_line(given):
        require_begun(out)
        _one_stage(stages.finetune, out, resolved(given, config, out), device)
        _tell_model(out / FINETUNED)


@app.command()
def scratch(out: Out, device: Device = "auto") -> None:
    """Train the pruned architecture from fresh weights, for at most twice the epochs; writes scratch.safetensors."""
    with errors_in_one_line():
        require_begun(out)
        _one_stage(stages.scratch, out, resolved({}, None, out), device)
        _tell_model(out / SCRATCH)


def _summarize(out: Path) -> None:
    screen = console()
    means = over_seeds(summarize(out))
    if means is not None:
        table = Table(*map(broken, means.header))
        for row in means.rows:
            table.add_row(*row)
        screen.print(table)
    say(screen, f"the summary is {out / MARKDOWN}, and for programs {out / JSON}")


def _lams(text: str | None, default: float) -> dict[str, float]:
    """The λ of a sweep as they were written, which names their folders, and as numbers."""
    written = [part.strip() for part in (f"{default:g}" if text is None else text).split(",") if part.strip()]
    if not written:
        raise typer.BadParameter("there is no number in it", param_hint="--lam")
    values = numbers(",".join(written), float, "lam")
    if same := [part for part, value in zip(written, values, strict=True) if values.count(value) > 1]:
        raise typer.BadParameter(f"it has a number more than once: {', '.join(same)}", param_hint="--lam")
    return dict(zip(written, values, strict=True))


def _run_all(experiments: dict[Path, Experiment], device: str, together: int = stages.TOGETHER) -> None:
    screen = console()
    pipelines = opened(experiments, device, screen)
    try:
        with reports(screen) as report:
            stages.run(pipelines, report, together=together)
    except RunsFailed as failed:
        if finished := failed.others(pipelines):
            _show(finished, screen)
        raise
    _show(pipelines, screen)


def _one_stage(do: Stage, out: Path, experiment: Experiment, device: str, then: tuple[str, ...] = ()) -> None:
    screen = console()
    pipelines = opened({out: experiment}, device, screen)
    with reports(screen) as report:
        do(pipelines, report)
    _show(pipelines, screen)
    made = {MADE_BY[file] for file in MADE_BY if (out / file).exists()}
    if then and not made & set(then):
        ways = " or ".join(f"otprune {verb} --out {shlex.quote(str(out))}" for verb in then)
        say(screen, f"next: {ways}")


def _show(pipelines: Sequence[Pipeline], screen: Console) -> None:
    """What came of runs, and what is to be said of them."""
    screen.print(results_table([stages.record(pipeline) for pipeline in pipelines]))
    for pipeline in pipelines:
        whose = f"{pipeline.folder.name}: " if len(pipelines) > 1 else ""
        for remark in pipeline.results.get("remarks", ()):
            say(screen, f"{whose}{remark}")


def _tell_model(path: Path) -> None:
    say(console(), f"the model is {path}; load it with ot.load(model, path), and feed it as {DATA} beside it says")


def _prune_all(pipelines: Sequence[Pipeline], report: Report) -> None:
    for pipeline in pipelines:
        stages.prune(pipeline)
