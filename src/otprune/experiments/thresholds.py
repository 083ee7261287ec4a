"""Are the thresholds right? Prune at all thresholds shifted up and down, and see what each shift costs and gains."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import otprune as ot
from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.attribution import attribution
from otprune.experiments.bounding import bounds_for
from otprune.experiments.cells import cost_of_trained
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import PRUNED, RECORD, SPARSE, write_json
from otprune.experiments.pipeline import Pipeline
from otprune.experiments.reporting import Report
from otprune.files import remove_leftovers
from otprune.plan import PruningPlan
from otprune.training.loop import SAVE_EVERY_SECONDS

SHIFTS = (-6.0, -5.0, -4.0, -3.0, -2.0, -1.0, -0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
FOLDER = "threshold-check"


def verify_thresholds(
    pipeline: Pipeline,
    shifts: Sequence[float] = SHIFTS,
    finetune_epochs: int | None = None,
    report: Report | None = None,
    save_every: float = SAVE_EVERY_SECONDS,
    together: int = stages.TOGETHER,
) -> dict[str, Any]:
    """Prune a trained run at thresholds times 10**shift, and fine-tune: writes threshold-check/record.json.

    Test accuracy is measured after pruning, after recalibration and after fine-tuning, which 0 epochs leave out; None
    takes as many as the run has. Shifts that come to the same channels share one pruned model.

    >>> import tempfile, torch
    >>> from otprune.experiments.pipeline import open_data
    >>> from otprune.training.run import Training
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     experiment = Experiment("digits_net", "digits", training=Training(epochs=0))
    ...     run = Pipeline(experiment, Path(folder), open_data("digits"), torch.device("cpu"))
    ...     stages.train([run])
    ...     [found["flops"] for found in verify_thresholds(run, (-1, 0), finetune_epochs=0)["shifts"]]
    [1.0, 1.0]
    """
    if not shifts:
        raise TrainingError("no shift of the thresholds was given: write --shifts=-1,0,0.1")
    experiment = _plainly_finetuned(pipeline.experiment, finetune_epochs)
    checks = _checks(pipeline, sorted(set(shifts)), experiment)
    if experiment.finetuning.epochs:
        once = {check.folder: check for check in checks.values()}
        stages.finetune(list(once.values()), report, save_every, together)
    record = {
        "experiment": experiment.to_dict(),
        "shifts": [_summary(shift, check) for shift, check in checks.items()],
    }
    remove_leftovers(pipeline.folder / FOLDER)  # no other process writes here: the run is held by this one
    write_json(pipeline.folder / FOLDER / RECORD, record)
    return record


def _plainly_finetuned(experiment: Experiment, epochs: int | None) -> Experiment:
    """At thresholds that go by their rule alone, and fine-tuned by labels alone: it is thresholds that are compared.

    What a latency was met by, shift and rounding, is left out with it.
    """
    finetuning = replace(experiment.finetuning, distill=0.0)
    if epochs is not None:
        finetuning = replace(finetuning, epochs=epochs)
    pruning = replace(experiment.pruning, max_drop=None, flops=None, params=None, latency=None)
    return replace(experiment, pruning=pruning, finetuning=finetuning)


def _checks(pipeline: Pipeline, shifts: Sequence[float], experiment: Experiment) -> dict[float, Pipeline]:
    """A pruned model for every shift, made where it is not there yet."""
    model, pruning = pipeline.load(SPARSE), experiment.pruning
    bounds = bounds_for(experiment, model, pipeline.example())
    opened: dict[Path, Pipeline] = {}
    checks = {}
    for shift in shifts:
        rule = ot.Shifted(pruning.thresholds(), shift)
        plan = ot.plan(model, pipeline.example(), rule, **bounds)
        place = _place(pipeline.folder / FOLDER, plan, shift)
        if place not in opened:
            opened[place] = Pipeline(experiment, place, pipeline.source, pipeline.device)
        if not (place / PRUNED).exists():
            stages.prune_by(plan, opened[place], model)
        checks[shift] = opened[place]
    return checks


def _place(folder: Path, plan: PruningPlan, shift: float) -> Path:
    """The folder of what the plan makes of the model, also where another shift made it."""
    fields = asdict(plan)
    made = {name: fields[name] for name in ("cuts", "selections", "removed", "masked", "folds")}
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]
    return next(folder.glob(f"shift*-{digest}"), folder / f"shift{shift:+g}-{digest}")


def _summary(shift: float, check: Pipeline) -> dict[str, Any]:
    results, layers = check.results, check.results["layers"]
    before, after = cost_of_trained(results), results["cost_after"]
    return {
        "shift": shift,
        "folder": check.folder.name,
        "channels": sum(layer["kept"] for layer in layers),
        "kept": {layer["name"]: layer["kept"] for layer in layers},
        "flops": after["flops"] / before["flops"],
        "parameters": after["parameters"] / before["parameters"],
        **{name: value for name, value in results.items() if name.startswith(("accuracy_", "cost_"))},
        **attribution(stages.record(check)),
    }
