"""A run's model as a file for another runtime, checked and measured there; the record of it is export.json."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from otprune import __version__
from otprune.deploy.accuracies import remarks
from otprune.deploy.agreement import BATCHES, TOLERANCE, Array, Runner, difference, require_agreement
from otprune.deploy.formats import QUANTIZER, Format, chosen_format
from otprune.deploy.packages import imported, versions
from otprune.deploy.quantizing import CALIBRATION_IMAGES
from otprune.deploy.writing import require_folder, write_checked
from otprune.errors import DeployError
from otprune.experiments.claiming import require_no_file_of_a_run
from otprune.experiments.contents import Exports, well_formed
from otprune.experiments.folder import FINETUNED, PRUNED, SCRATCH, SPARSE, read_json, write_json
from otprune.experiments.pipeline import Pipeline
from otprune.files import remove_leftovers
from otprune.provenance import provenance
from otprune.training.evaluation import accuracy
from otprune.training.feed import calibration

Check = Callable[[Runner], dict[str, Any]]

RECORD = "export.json"
FOLDER = "export"
LAST_FIRST = (FINETUNED, SCRATCH, PRUNED)
STAGES = {Path(file).stem: file for file in (*LAST_FIRST, SPARSE)}

# What a run's results call the accuracy of the model in each file.
MEASURED_AS = {FINETUNED: "finetuned", SCRATCH: "scratch", PRUNED: "recalibrated", SPARSE: "sparse"}


@dataclass(frozen=True)
class Request:
    """What to export: to which format, in eight bits or not, the model of which stage, and to which file.

    Without a stage it is the run's last one, without a file one in the run's folder. Eight bits are calibrated on so
    many training images, or on all where there are fewer.

    >>> Request("onnx", int8=True).stage is None
    True
    """

    to: str
    int8: bool = False
    stage: str | None = None
    out: Path | None = None
    calibration_images: int = CALIBRATION_IMAGES


def export(pipeline: Pipeline, request: Request) -> dict[str, Any]:
    """Write a model of a run to a file, whole or not at all, and add what was measured of it to export.json.

    In single precision the outputs are those of torch, within a tolerance that the record tells. In eight bits, ranges
    are measured on training images. The accuracy is that of the file on the test images, in the runtime it is for; what
    looks wrong in it is among the entry's remarks.
    """
    format = chosen_format(request.to, request.int8)
    stage = chosen_stage(pipeline.folder, request.stage)
    for package in _packages(format, request):
        imported(package)  # before anything that takes time
    path = _place(pipeline.folder, request, stage, format)
    job = _Job(pipeline, format, pipeline.load(STAGES[stage]), _note(pipeline, stage))
    measured = job.quantized(path, request.calibration_images) if request.int8 else job.plain(path)
    entry = {**_described(pipeline, request, stage, format), **measured}
    return _recorded(pipeline, path, {**entry, "remarks": remarks(entry)})


def chosen_stage(folder: Path, asked: str | None) -> str:
    """The stage whose model is exported: the one asked for, or that of the run's last model.

    >>> chosen_stage(Path("nowhere"), None)
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: nowhere has no pruned model yet: make one with otprune prune --out nowhere, or ...
    """
    if asked is not None and asked not in STAGES:
        raise DeployError(f"there is no stage {asked}: choose one of {', '.join(STAGES)}")
    if asked is not None:
        return asked
    for file in LAST_FIRST:
        if (folder / file).exists():
            return Path(file).stem
    raise DeployError(
        f"{folder} has no pruned model yet: make one with otprune prune --out {folder}, or export the unpruned one "
        f"with --stage sparse"
    )


@dataclass(frozen=True)
class _Job:
    """A model on its way to a format."""

    pipeline: Pipeline
    format: Format
    model: nn.Module
    note: dict[str, Any]

    def plain(self, path: Path) -> dict[str, Any]:
        """Write it in single precision."""
        return self._write(self._converted(), path, self._checked)

    def quantized(self, path: Path, images: int) -> dict[str, Any]:
        """Write it in eight bits, and measure it before too, so that the record tells what they cost."""
        converted = self._converted()
        with tempfile.TemporaryDirectory() as folder:
            before = self._write(converted, Path(folder, path.name), self._checked)
        assert self.format.quantize is not None
        shown = list(training_images(self.pipeline, images))
        found = self._write(self.format.quantize(converted, shown), path, self._compared)
        return {**found, "calibration_images": len(shown), "before_quantization": before}

    def _converted(self) -> Any:
        return self.format.convert(self.model, self.pipeline.example())

    def _write(self, converted: Any, path: Path, check: Check) -> dict[str, Any]:
        return write_checked(
            path, lambda draft: self.format.write(converted, draft, self.note), partial(self._measured, check)
        )

    def _measured(self, check: Check, draft: Path) -> dict[str, Any]:
        run = self.format.open(draft, self.pipeline.fresh_model())
        data = self.pipeline.data
        return {
            "bytes": sum(file.stat().st_size for file in draft.parent.iterdir()),
            **check(run),
            "accuracy": accuracy(_InRuntime(run), data.test, data.mean, data.std),
        }

    def _checked(self, run: Runner) -> dict[str, Any]:
        found = require_agreement(self.model, self.pipeline.example(), run, self.format.runtime)
        return {"difference": found, "tolerance": TOLERANCE, "checked_with_images": list(BATCHES)}

    def _compared(self, run: Runner) -> dict[str, Any]:
        return {"difference": difference(self.model, self.pipeline.example(), run, self.format.runtime)}


class _InRuntime(nn.Module):
    """A runner as a module, which is what accuracies are measured of."""

    def __init__(self, run: Runner) -> None:
        super().__init__()
        self.run = run
        self.precision = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.from_numpy(self.run([images.numpy()])[0])


def training_images(pipeline: Pipeline, count: int) -> Iterator[Array]:
    """Images that the run trains on, as they are, in random order, ready for the model: arrays of one image each."""
    plain = replace(pipeline.experiment.training, augment=False, cutout=0)
    batches = calibration(pipeline.data, plain, count)
    return islice((image.numpy() for batch in batches for image in batch.split(1)), count)


def _packages(format: Format, request: Request) -> tuple[str, ...]:
    return (*format.packages, QUANTIZER) if request.int8 else format.packages


def _place(folder: Path, request: Request, stage: str, format: Format) -> Path:
    if request.out is None:
        (folder / FOLDER).mkdir(exist_ok=True)
        remove_leftovers(folder / FOLDER)
        return folder / FOLDER / f"{stage}{'.int8' if request.int8 else ''}{format.suffix}"
    if request.out.suffix != format.suffix:
        raise DeployError(f"{request.out}: a file for {request.to} has to end in {format.suffix}")
    require_no_file_of_a_run(request.out)
    require_folder(request.out)
    return request.out


def _note(pipeline: Pipeline, stage: str) -> dict[str, Any]:
    """What goes into the file: how to feed it, and where it comes from."""
    experiment = pipeline.experiment
    return {
        **pipeline.feeding,
        "model": experiment.model,
        "data": experiment.data,
        "stage": stage,
        "otprune": __version__,
    }


def _described(pipeline: Pipeline, request: Request, stage: str, format: Format) -> dict[str, Any]:
    return {
        "stage": stage,
        "format": request.to,
        "runtime": format.runtime,
        "int8": request.int8,
        "accuracy_of_run": pipeline.results.get(f"accuracy_{MEASURED_AS[STAGES[stage]]}"),
        "test_images": len(pipeline.data.test),
        "versions": versions(_packages(format, request)),
        "provenance": provenance(pipeline.device),
    }


def _recorded(pipeline: Pipeline, path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Add an entry to the record, in the place of one for the same file."""
    record = pipeline.folder / RECORD
    known = well_formed(Exports, read_json(record), record).get("files", {}) if record.exists() else {}
    inside = path.resolve().is_relative_to(pipeline.folder.resolve())
    name = str(path.resolve().relative_to(pipeline.folder.resolve()) if inside else path.resolve())
    write_json(record, {"files": {**known, name: entry}})
    return {"file": str(path), **entry}
