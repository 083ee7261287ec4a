"""What is to be timed: the models of runs, each beside its unpruned original, and files that were exported."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import otprune as ot
from otprune.deploy.packages import imported
from otprune.deploy.pt2 import load_program
from otprune.deploy.runtimes import FILES, RUNTIMES, Device, Ready, Runtime, file_in_runtime, in_runtime, runtimes_of
from otprune.errors import DeployError
from otprune.experiments.contents import Feeding, well_formed
from otprune.experiments.feeding import DATA
from otprune.experiments.folder import CONFIGURATION, FINETUNED, PRUNED, SCRATCH, configuration, read_json
from otprune.models.building import build_model
from otprune.training.data.seeds import seeded

CHECKPOINT = ".safetensors"
# All of one architecture; the first that is there is taken.
PRUNED_MODELS = (FINETUNED, PRUNED, SCRATCH)
FOLDERS_UP = 3  # in which the run is looked for that an exported file comes from


@dataclass(frozen=True, eq=False)
class Subject:
    """Something that runs: a model or an exported file, for images of a shape, and the name of its original, if any.

    >>> Subject("net", nn.ReLU(), (1, 8, 8)).runtimes
    ('torch', 'torch-compile', 'onnxruntime', 'openvino')
    """

    name: str
    source: nn.Module | Path
    image_shape: tuple[int, ...]
    original: str | None = None

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Those that it runs in."""
        return runtimes_of(self.source) if isinstance(self.source, Path) else RUNTIMES

    def ready(self, runtime: Runtime, device: Device, threads: int, batch: int) -> Ready:
        """It in a runtime, with a batch of drawn images."""
        images = torch.randn(batch, *self.image_shape, generator=torch.Generator().manual_seed(0))
        if isinstance(self.source, Path):
            return file_in_runtime(self.source, images, runtime, device, threads)
        return in_runtime(self.source, images, runtime, device, threads)

    def cost(self) -> dict[str, int]:
        """FLOPs and parameters; nothing of an exported file, in which they are not counted."""
        if isinstance(self.source, Path):
            return {}
        found = ot.cost(self.source, torch.zeros(1, *self.image_shape))
        return {"flops": found.flops, "macs": found.macs, "parameters": found.parameters}


def subjects(paths: Iterable[Path]) -> list[Subject]:
    """Those of folders of runs, of checkpoints in them, and of exported files; originals first, each once.

    A run is timed as the model that it ended with. An exported file is compared with the original of the run in whose
    folder it lies, and with nothing where it lies elsewhere.

    >>> subjects([Path("nowhere")])
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: nowhere: is neither the folder of a run, with config.json and data.json, nor a ...
    """
    found = [subject for path in paths for subject in _of(path)]
    once = {subject.name: subject for subject in found}
    return sorted(once.values(), key=lambda subject: subject.original is not None)


def _of(path: Path) -> Iterator[Subject]:
    above = path.absolute().parents[:FOLDERS_UP]
    run = next((_Run(folder) for folder in (path, *above) if _is_run(folder)), None)
    if run is not None:
        yield run.original
        yield run.subject(path)
    elif path.suffix in FILES and path.is_file():
        yield Subject(str(path), path, _shape_of(path))
    else:
        raise DeployError(
            f"{path}: is neither the folder of a run, with {CONFIGURATION} and {DATA}, nor a model's file"
        )


def _is_run(folder: Path) -> bool:
    """With both files: other programs call theirs config.json too."""
    return (folder / CONFIGURATION).is_file() and (folder / DATA).is_file()


class _Run:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        experiment = configuration(folder)
        assert experiment is not None
        self.folder, self.experiment = folder, experiment
        fields = well_formed(Feeding, read_json(folder / DATA), folder / DATA)
        if not {"image_shape", "classes"} <= fields.keys():
            raise DeployError(f"{folder / DATA}: does not say what images the models take. Get an undamaged copy.")
        self.image_shape, self.classes = tuple(fields["image_shape"]), len(fields["classes"])

    @property
    def original(self) -> Subject:
        """With fresh weights: those that sparse training left may be so small that to multiply by them takes longer."""
        name = f"{self.experiment.model} for {Path(self.experiment.data).name}, unpruned"
        return Subject(name, self._fresh(), self.image_shape)

    def subject(self, path: Path) -> Subject:
        name = self.original.name
        if path.is_dir():
            return Subject(str(path), self._loaded(self._ended_with()), self.image_shape, name)
        if not path.is_file():
            raise DeployError(f"{path}: no such file")
        source = self._loaded(path) if path.suffix == CHECKPOINT else path
        return Subject(str(path), source, self.image_shape, name)

    def _ended_with(self) -> Path:
        for name in PRUNED_MODELS:
            if (self.folder / name).is_file():
                return self.folder / name
        raise DeployError(f"{self.folder}: has no pruned model yet: otprune prune --out {self.folder}")

    def _fresh(self) -> nn.Module:
        with seeded(self.experiment.training.seed):
            return build_model(self.experiment.model, num_classes=self.classes).eval()

    def _loaded(self, path: Path) -> nn.Module:
        return ot.load(self._fresh(), path).eval()


def _shape_of(path: Path) -> tuple[int, ...]:
    """The shape of an image that a file takes."""
    if path.suffix == ".pt2":
        return _shape_of_program(path)
    sizes = _sizes_of(path)
    if any(size.is_dynamic for size in sizes):
        raise DeployError(f"{path}: does not say of what size its images are: export it for one size")
    return tuple(size.get_length() for size in sizes)


def _shape_of_program(path: Path) -> tuple[int, ...]:
    inputs = load_program(path).example_inputs
    first = inputs[0][0] if inputs and inputs[0] else None
    if not isinstance(first, Tensor):
        raise DeployError(f"{path}: does not say what images it takes: export the model again")
    return tuple(first.shape[1:])


def _sizes_of(path: Path) -> Sequence[Any]:
    try:
        return list(imported("openvino").Core().read_model(path).inputs[0].partial_shape)[1:]
    except (RuntimeError, ValueError, IndexError) as error:
        raise DeployError(f"{path}: is no network that can be opened: {error}. Export the model again.") from error
