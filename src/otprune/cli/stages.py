"""The pipeline as verbs: whole, and stage by stage."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from otprune.cli.app import app
from otprune.cli.flags import Config, Deterministic, Device, Out, with_settings
from otprune.cli.pipelines import run_all, show_pipelines
from otprune.cli.running import console, errors_in_one_line, opened, reports, require_begun, say
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.feeding import DATA
from otprune.experiments.fields import Flat
from otprune.experiments.folder import FINETUNED, MADE_BY, SCRATCH
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.experiments.settings import resolved
from otprune.training.determinism import determinism

Stage = Callable[[Sequence[Pipeline], Report], object]


@app.command()
@with_settings("", "training", "pruning", "finetuning")
def run(
    out: Out, given: Flat, config: Config = None, device: Device = "auto", deterministic: Deterministic = False
) -> None:
    """Train with sparsity, prune, recalibrate and fine-tune: the whole pipeline, resumable.

    For example: otprune run --model vgg14 --data cifar10 --lam 1e-4 --out runs/vgg14
    """
    with errors_in_one_line(given), determinism(deterministic):
        run_all({out: resolved(given, config, out)}, device)
        _tell_model(out / FINETUNED)


@app.command()
@with_settings("", "training")
def train(
    out: Out, given: Flat, config: Config = None, device: Device = "auto", deterministic: Deterministic = False
) -> None:
    """Train with sparsity; writes sparse.safetensors."""
    with errors_in_one_line(given), determinism(deterministic):
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
def finetune(
    out: Out, given: Flat, config: Config = None, device: Device = "auto", deterministic: Deterministic = False
) -> None:
    """Fine-tune the pruned model; writes finetuned.safetensors."""
    with errors_in_one_line(given), determinism(deterministic):
        require_begun(out)
        _one_stage(stages.finetune, out, resolved(given, config, out), device)
        _tell_model(out / FINETUNED)


@app.command()
def scratch(out: Out, device: Device = "auto", deterministic: Deterministic = False) -> None:
    """Train the pruned architecture from fresh weights, for at most twice the epochs; writes scratch.safetensors."""
    with errors_in_one_line(), determinism(deterministic):
        require_begun(out)
        _one_stage(stages.scratch, out, resolved({}, None, out), device)
        _tell_model(out / SCRATCH)


def _one_stage(do: Stage, out: Path, experiment: Experiment, device: str, then: tuple[str, ...] = ()) -> None:
    screen = console()
    pipelines = opened({out: experiment}, device, screen)
    with reports(screen) as report:
        do(pipelines, report)
    show_pipelines(pipelines, screen)
    made = {MADE_BY[file] for file in MADE_BY if (out / file).exists()}
    if then and not made & set(then):
        ways = " or ".join(f"otprune {verb} --out {shlex.quote(str(out))}" for verb in then)
        say(screen, f"next: {ways}")


def _tell_model(path: Path) -> None:
    say(console(), f"the model is {path}; load it with ot.load(model, path), and feed it as {DATA} beside it says")


def _prune_all(pipelines: Sequence[Pipeline], report: Report) -> None:
    for pipeline in pipelines:
        stages.prune(pipeline)
