"""Verbs that prune more than once: in rounds, and at shifted thresholds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from otprune.cli.app import app
from otprune.cli.downloads import downloads
from otprune.cli.flags import NUMBERS, RUN, Config, Deterministic, Device, Out, numbers, with_settings
from otprune.cli.running import console, errors_in_one_line, opened, reports, require_begun, say, tell_recipe
from otprune.experiments import iterate as iterating
from otprune.experiments import stages
from otprune.experiments.choosing import TARGETS
from otprune.experiments.experiment import OF_LATENCY
from otprune.experiments.fields import Flat
from otprune.experiments.passed_over import require_flags_of_use
from otprune.experiments.pipeline import data_of
from otprune.experiments.screen import measured_table
from otprune.experiments.settings import resolved, said
from otprune.experiments.thresholds import SHIFTS, verify_thresholds
from otprune.training.determinism import determinism
from otprune.training.loop import chosen_device

# Rounds go by thresholds alone.
AIMS = ("training.target_flops", *(f"pruning.{name}" for name in (*TARGETS, *OF_LATENCY)))

OF_THE_FIRST = "FLOPs left\nin all"
OF_A_ROUND = (
    "Each round is told beside the network that it began with; the FLOPs left in all beside the unpruned one's."
)


@app.command()
@with_settings("", "training", "pruning", "finetuning", without=AIMS)
def iterate(
    out: Annotated[
        Path, typer.Option(help="Folder of the rounds; each has a folder of its own inside.", rich_help_panel=RUN)
    ],
    given: Flat,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prune so many times.",
            show_default=f"as many as the folder was last asked for, or else {iterating.ROUNDS}",
            rich_help_panel=RUN,
        ),
    ] = None,
    restart: Annotated[
        iterating.Restart,
        typer.Option(
            help="What a round starts from: the fine-tuned weights of the last, or fresh ones in what it pruned to.",
            rich_help_panel=RUN,
        ),
    ] = iterating.Restart.FINETUNED,
    config: Config = None,
    device: Device = "auto",
    deterministic: Deterministic = False,
) -> None:
    """Train with sparsity, prune and fine-tune (or train from scratch), round after round.

    Network Slimming (--rule ns) takes at most half of a layer a round, unless --max-layer-ratio says otherwise.
    """
    with errors_in_one_line(given), determinism(deterministic):
        experiment = resolved(given, config, out / "round-1")
        require_flags_of_use(given, iterating.passed_over(restart))
        if "pruning.max_layer_ratio" not in said(given, config, out / "round-1"):
            experiment = iterating.with_the_usual_limit(experiment)
        screen, where = console(), chosen_device(device)
        with downloads(screen) as downloading:
            source = data_of(experiment, downloading)
        if not out.exists():
            tell_recipe([experiment], screen)
        with reports(screen) as report:
            record = iterating.iterate(experiment, out, source, where, rounds, restart, report)
    done = record["rounds"]
    screen.print(measured_table([_labels(one) for one in done], [one["results"] for one in done]))
    for line in (*([OF_A_ROUND] if len(done) > 1 else []), *_remarks(record)):
        say(screen, line)


def _labels(one: Mapping[str, Any]) -> dict[str, str]:
    return {"round": str(one["round"]), OF_THE_FIRST: f"{one['flops']:.1%}"}


def _remarks(record: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of rounds, once where it is the same of several, and of how they ended."""
    told: dict[str, list[str]] = {}
    for one in record["rounds"]:
        for remark in one["results"].get("remarks", ()):
            told.setdefault(remark, []).append(str(one["round"]))
    yield from (f"round {', '.join(numbers)}: {remark}" for remark, numbers in told.items())
    if record["remark"]:
        yield record["remark"]


@app.command()
def verify_threshold(
    out: Out,
    shifts: Annotated[
        str,
        typer.Option(
            help="log10 of what thresholds are multiplied by, separated by commas.",
            metavar=NUMBERS,
            rich_help_panel=RUN,
        ),
    ] = ",".join(f"{shift:g}" for shift in SHIFTS),
    finetune_epochs: Annotated[
        int | None,
        typer.Option(
            min=0, help="Epochs of fine-tuning, 0 for none.", show_default="those of the run", rich_help_panel=RUN
        ),
    ] = None,
    together: Annotated[
        int, typer.Option(min=1, help="Fine-tune at most so many side by side.", rich_help_panel=RUN)
    ] = stages.TOGETHER,
    device: Device = "auto",
) -> None:
    """Prune a trained run at thresholds shifted up and down, and fine-tune: are the thresholds at the edge?"""
    wanted = numbers(shifts, float, "--shifts")
    with errors_in_one_line():
        require_begun(out)
        screen = console()
        pipeline = opened({out: resolved({}, None, out)}, device, screen)[0]
        with reports(screen) as report:
            record = verify_thresholds(pipeline, wanted, finetune_epochs, report, together=together)
    found = record["shifts"]
    labels = [{"shift": f"{one['shift']:+g}", "channels": f"{one['channels']:,}"} for one in found]
    screen.print(measured_table(labels, found))
    if target := pipeline.experiment.pruning.target:
        say(screen, f"+0 is the rule's own threshold; the run itself was pruned for {target.kind}={target.value}")
