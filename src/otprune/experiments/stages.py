"""The stages of an experiment: each reads the file of the one before and writes its own; a finished one is skipped.

A stage's file is the last thing it writes: where it is, everything that the stage measured is in the results.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import otprune as ot
from otprune import models
from otprune.cost import Cost
from otprune.errors import DataError, ExampleError, TrainingError
from otprune.experiments.experiment import Experiment, claim_folder
from otprune.files import write_atomically
from otprune.provenance import provenance
from otprune.training import data as datasets
from otprune.training.data.images import Dataset
from otprune.training.loop import SAVE_EVERY_SECONDS, accuracy, train_together
from otprune.training.run import EpochRecord, Run, epoch_images

Report = Callable[["Pipeline", str, EpochRecord], None]
CALIBRATION_BATCH = 500


@dataclass
class Pipeline:
    """An experiment on its way: its folder, its data, and what has been measured so far."""

    experiment: Experiment
    folder: Path
    data: Dataset
    device: torch.device
    results: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._require_fit()  # first: a folder must not be claimed for what can never run
        claim_folder(self.folder, self.experiment)
        if self.results_file.exists():
            self.results = json.loads(self.results_file.read_text(encoding="utf-8"))

    @property
    def results_file(self) -> Path:
        return self.folder / "results.json"

    def note(self, **measured: Any) -> None:
        """Add what was measured, and write it down."""
        self.results |= measured
        write_atomically(self.results_file, (json.dumps(self.results, indent=2) + "\n").encode())

    def fresh_model(self) -> nn.Module:
        """The model as the seed builds it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.experiment.training.seed)
            return models.build(self.experiment.model, num_classes=len(self.data.classes))

    def load(self, name: str) -> nn.Module:
        return ot.load(self.fresh_model(), self.folder / name).to(self.device)

    def test_accuracy(self, model: nn.Module) -> float:
        return accuracy(model, self.data.test, self.data.mean, self.data.std)

    def example(self) -> Tensor:
        return torch.zeros(1, *self.data.test.pixels.shape[1:], device=self.device)

    def _require_fit(self) -> None:
        model, example = self.fresh_model(), self.example().cpu()
        try:
            ot.cost(model, example)
        except ExampleError as error:
            raise TrainingError(
                f"{self.experiment.model} does not run on the images of {self.experiment.data}, which are "
                f"{'×'.join(map(str, example.shape[1:]))}: choose another model or other data"
            ) from error


def run(
    pipelines: Sequence[Pipeline], report: Report | None = None, save_every: float = SAVE_EVERY_SECONDS
) -> list[dict[str, Any]]:
    """Everything, for several experiments side by side: train, prune, recalibrate, fine-tune; return the records.

    Trainings write a checkpoint every `save_every` seconds.
    """
    train(pipelines, report, save_every)
    for pipeline in pipelines:
        prune(pipeline)
    finetune(pipelines, report, save_every)
    return [record(pipeline) for pipeline in pipelines]


def train(pipelines: Sequence[Pipeline], report: Report | None = None, save_every: float = SAVE_EVERY_SECONDS) -> None:
    """Train with the sparsity penalty; writes sparse.safetensors."""
    waiting = [p for p in pipelines if not (p.folder / "sparse.safetensors").exists()]
    runs = [Run(p.fresh_model().to(p.device), p.data, p.experiment.training, p.folder / "train") for p in waiting]
    with _timed(waiting, "train"):
        train_together(runs, _reporter(runs, waiting, "train", report), save_every)
    for pipeline, finished in zip(waiting, runs, strict=True):
        pipeline.note(
            accuracy_sparse=pipeline.test_accuracy(finished.model),
            training=[asdict(epoch) for epoch in finished.history],
        )
        ot.save(finished.model, pipeline.folder / "sparse.safetensors")


def prune(pipeline: Pipeline) -> None:
    """Prune by OT and re-estimate the batch-norm statistics; writes plan.json and pruned.safetensors."""
    if (pipeline.folder / "pruned.safetensors").exists():
        return
    model = pipeline.load("sparse.safetensors")
    plan = ot.plan(model, pipeline.example(), ot.OptimalThreshold(pipeline.experiment.delta))
    small = ot.prune(model, plan)
    pruned = pipeline.test_accuracy(small)
    folded = pipeline.test_accuracy(ot.fold_constants(ot.prune(model, plan), model, plan))
    ot.recalibrate(small, calibration_batches(pipeline))
    plan.save(pipeline.folder / "plan.json")
    pipeline.note(
        accuracy_pruned=pruned,
        accuracy_folded=folded,
        accuracy_recalibrated=pipeline.test_accuracy(small),
        cost_before=totals(ot.cost(model, pipeline.example())),
        cost_after=totals(ot.cost(small, pipeline.example())),
        layers=[asdict(layer) | {"kept": len(layer.kept)} for layer in plan.layers],
        removed=plan.removed,
    )
    ot.save(small, pipeline.folder / "pruned.safetensors")


def finetune(
    pipelines: Sequence[Pipeline], report: Report | None = None, save_every: float = SAVE_EVERY_SECONDS
) -> None:
    """Fine-tune the pruned models; writes finetuned.safetensors."""
    waiting = [p for p in pipelines if not (p.folder / "finetuned.safetensors").exists()]
    runs = [
        Run(p.load("pruned.safetensors"), p.data, p.experiment.finetuning(), p.folder / "finetune") for p in waiting
    ]
    with _timed(waiting, "finetune"):
        train_together(runs, _reporter(runs, waiting, "finetune", report), save_every)
    for pipeline, finished in zip(waiting, runs, strict=True):
        pipeline.note(
            accuracy_finetuned=pipeline.test_accuracy(finished.model),
            finetuning=[asdict(epoch) for epoch in finished.history],
        )
        ot.save(finished.model, pipeline.folder / "finetuned.safetensors")


def record(pipeline: Pipeline) -> dict[str, Any]:
    """What is kept of an experiment: configuration, results, versions and hardware; writes record.json.

    Where nothing was measured since it was written, it stays: the versions and hardware in it are those that measured.
    """
    path = pipeline.folder / "record.json"
    if path.exists():
        written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if written["results"] == pipeline.results:
            return written
    content = {
        "experiment": pipeline.experiment.to_dict(),
        "results": pipeline.results,
        "provenance": provenance(),
    }
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
    return content


def calibration_batches(pipeline: Pipeline) -> Iterator[Tensor]:
    """Training images, cropped and mirrored as in training, in a draw that no epoch of the training used."""
    training, data = pipeline.experiment.training, pipeline.data
    pixels, _ = epoch_images(data.train.pixels, data.train.labels, training, training.epochs)
    mean, std = data.mean.view(1, -1, 1, 1), data.std.view(1, -1, 1, 1)
    for batch in pixels[: pipeline.experiment.calibration_images].split(CALIBRATION_BATCH):
        yield (batch.float().cpu() / 255 - mean) / std


def totals(cost: Cost) -> dict[str, int]:
    """What a model costs in all.

    >>> totals(ot.cost(nn.Linear(3, 2), torch.zeros(1, 3)))
    {'parameters': 8, 'macs': 6, 'flops': 10}
    """
    return {"parameters": cost.parameters, "macs": cost.macs, "flops": cost.flops}


def open_data(name: str) -> Dataset:
    """The data set of that name, as tensors.

    >>> len(open_data("digits").train)
    1347
    """
    found = datasets.load(name)
    if not isinstance(found, Dataset):
        raise DataError(f"{name}: a folder of images cannot be trained on yet; choose cifar10, cifar100 or digits")
    return found


@contextmanager
def _timed(pipelines: Sequence[Pipeline], stage: str) -> Iterator[None]:
    """Add what the stage took, be it to the end or until it was broken off."""
    started = time.perf_counter()
    try:
        yield
    finally:
        for pipeline in pipelines:
            before = pipeline.results.get("seconds", {})
            spent = before.get(stage, 0.0) + time.perf_counter() - started
            pipeline.note(seconds=before | {stage: spent, f"{stage}_side_by_side": len(pipelines)})


def _reporter(
    runs: Sequence[Run], pipelines: Sequence[Pipeline], stage: str, report: Report | None
) -> Callable[[Run, EpochRecord], None]:
    owners = dict(zip(map(id, runs), pipelines, strict=True))

    def after_epoch(run: Run, epoch: EpochRecord) -> None:
        pipeline = owners[id(run)]
        if stage == "finetune" and epoch.epoch in pipeline.experiment.report_after:
            pipeline.note(**{f"accuracy_finetuned_{epoch.epoch}": pipeline.test_accuracy(run.model)})
        if report is not None:
            report(pipeline, stage, epoch)

    return after_epoch
