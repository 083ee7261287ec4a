"""The ILSVRC recipe on made images: a few steps that show that it runs, where the real images are not at hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import otprune as ot
from otprune.experiments import paper, stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.reproduce.records import Records
from otprune.experiments.reproduce.workshop import Workshop
from otprune.experiments.settings import resolved
from otprune.models.building import build_model

DATA = "made-images"
MODELS = tuple(paper.table("ilsvrc"))
CLASSES, BATCH, STEPS, SIDE = 2, 2, 3, 256
ALL_CLASSES, CROP = 1000, 224


def place(model: str) -> str:
    """Where the record of a model lies below results/.

    >>> place("vgg16_bn")
    'made-images/vgg16_bn/steps'
    """
    return f"{DATA}/{model}/steps"


def run_on_made_images(workshop: Workshop, models: Sequence[str] = MODELS) -> None:
    """Train, prune, recalibrate and fine-tune each model for a few steps, unless that is recorded.

    >>> run_on_made_images(Workshop(Path("runs"), Path("results"), torch.device("cpu")), models=())
    """
    records = Records(workshop.results)
    for model in models:
        if records.at(place(model)) is None:
            record = stages.run([workshop.pipeline(place(model), _experiment(model, workshop))], workshop.report)[0]
            record["experiment"]["data"] = DATA  # the folder's name means nothing elsewhere
            record["results"].pop("gammas")  # nor do scaling factors after a few steps
            workshop.keep(place(model), {**record, "cost_of_all_classes": _cost_of_all_classes(model)})


def _experiment(model: str, workshop: Workshop) -> Experiment:
    images = workshop.runs / DATA / "images"
    if not images.exists():
        write_images(images)
    full = resolved({"model": model, "data": str(images)}, "ilsvrc")
    return replace(
        full,
        training=replace(full.training, epochs=1, batch=BATCH),
        pruning=replace(full.pruning, calibration_images=BATCH * STEPS),
        finetuning=replace(full.finetuning, epochs=1, report_after=()),
    )


def _cost_of_all_classes(model: str) -> dict[str, int]:
    """What the unpruned network costs on ILSVRC-2012, which has more classes than the made images."""
    with torch.device("meta"):
        return stages.totals(ot.cost(build_model(model, num_classes=ALL_CLASSES), torch.zeros(1, 3, CROP, CROP)))


def write_images(folder: Path, side: int = SIDE) -> None:
    """Noise in as many classes as it takes, for training and for validation; the same every time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_images(Path(folder), side=8)
    ...     len(list(Path(folder).glob("train/*/*.png")))
    6
    """
    from PIL import Image

    draw = np.random.default_rng(0)
    for part, count in (("train", BATCH * STEPS), ("val", CLASSES)):
        for index in range(count):
            path = folder / part / f"class{index % CLASSES}" / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)
