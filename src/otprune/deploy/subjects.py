"""What is to be timed: the models of runs, each beside its unpruned original, and files that were exported."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import otprune as ot
from otprune.deploy.file_shapes import shape_of
from otprune.deploy.runtimes import FILES, RUNTIMES, Device, Ready, Runtime, file_in_runtime, in_runtime, runtimes_of
from otprune.errors import DeployError
from otprune.experiments.claiming import runs_in, some
from otprune.experiments.contents import Feeding, well_formed
from otprune.experiments.feeding import DATA
from otprune.experiments.folder import CONFIGURATION, FINETUNED, PRUNED, SCRATCH, read_json
from otprune.experiments.run_facts import configuration
from otprune.models.building import build_model
from otprune.training.checkpoint import checkpoints
from otprune.training.data.seeds import seeded

CHECKPOINT = ".safetensors"
# All of one architecture; the first that is there is taken.
PRUNED_MODELS = (FINETUNED, PRUNED, SCRATCH)
FOLDERS_UP = 3  # in which the run is looked for that an exported file comes from


@dataclass(frozen=True, eq=False)
class Subject:
    """Something that runs: a model or an exported file, for images of a shape, and the name of its original, if any.

    `run` is the folder of the run that it is of, resolved; None where it is of none, or the original of several.

    >>> Subject("net", nn.ReLU(), (1, 8, 8)).runtimes
    ('torch', 'torch-compile', 'onnxruntime', 'openvino')
    """

    name: str
    source: nn.Module | Path
    image_shape: tuple[int, ...]
    original: str | None = None
    run: Path | None = None

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
    folder it lies, and with nothing where it lies elsewhere. Runs of one network for images alike share an original.

    >>> subjects([Path("nowhere")])
    Traceback (most recent call last):
        ...
    otprune.errors.DeployError: nowhere: is neither the folder of a run, with config.json and data.json, nor a ...
    """
    runs = {path: _run_around(path) for path in paths}
    names = _told_apart(run.network for run in runs.values() if run is not None)
    found = [subject for path, run in runs.items() for subject in _of(path, run, names)]
    once = {subject.name: subject for subject in found}
    return sorted(once.values(), key=lambda subject: subject.original is not None)


class _Network(NamedTuple):
    """All that an original is known by: those of runs that agree in this are one, whatever else the runs differ in."""

    model: str
    data: str
    image_shape: tuple[int, ...]
    classes: int

    def name(self, whole: bool) -> str:
        """By model and data, or with everything, where these are not enough."""
        images = f", {'×'.join(map(str, self.image_shape))}, {self.classes} classes" if whole else ""
        return f"{self.model} for {self.data}{images}, unpruned"


def _told_apart(networks: Iterable[_Network]) -> dict[_Network, str]:
    different = set(networks)
    names = Counter(network.name(whole=False) for network in different)
    return {network: network.name(whole=names[network.name(whole=False)] > 1) for network in different}


def _run_around(path: Path) -> "_Run | None":
    """The run that is at a path, or that a file there lies in."""
    above = path.absolute().parents[:FOLDERS_UP]
    return next((_Run(folder) for folder in (path, *above) if _is_run(folder)), None)


def _of(path: Path, run: "_Run | None", names: Mapping[_Network, str]) -> Iterator[Subject]:
    if run is not None:
        timed = run.subject(path, names[run.network])
        yield run.original(names[run.network])
        yield timed
    elif path.suffix in FILES and path.is_file():
        yield Subject(str(path), path, shape_of(path))
    else:
        runs = runs_in(path)
        inside = f". Name one of the runs in it: {some(runs)}" if runs else ""
        raise DeployError(
            f"{path}: is neither the folder of a run, with {CONFIGURATION} and {DATA}, nor a model's file{inside}"
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
        shape, classes = tuple(fields["image_shape"]), len(fields["classes"])
        self.network = _Network(experiment.model, Path(experiment.data).name, shape, classes)

    def original(self, name: str) -> Subject:
        """With fresh weights: those that sparse training left may be so small that to multiply by them takes longer."""
        return Subject(name, self._fresh(), self.network.image_shape)

    def subject(self, path: Path, original: str) -> Subject:
        """The run as the model that it ended with, or the file that is named in it."""
        if path.is_dir() and path != self.folder:
            raise DeployError(f"{path}: is no run, but a folder in the run {self.folder}. {_instead(path)}")
        if not path.exists():
            raise DeployError(f"{path}: no such file")
        file = self._ended_with() if path.is_dir() else path
        source = self._loaded(file) if file.suffix == CHECKPOINT else file
        return Subject(str(path), source, self.network.image_shape, original, self.folder.resolve())

    def _ended_with(self) -> Path:
        for name in PRUNED_MODELS:
            if (self.folder / name).is_file():
                return self.folder / name
        raise DeployError(f"{self.folder}: has no pruned model yet: otprune prune --out {self.folder}")

    def _fresh(self) -> nn.Module:
        with seeded(self.experiment.training.seed):
            return build_model(self.experiment.model, self.network.classes, self.folder).eval()

    def _loaded(self, path: Path) -> nn.Module:
        return ot.load(self._fresh(), path).eval()


def _instead(folder: Path) -> str:
    """What to give in the place of a folder that is no run."""
    models = {path for path in folder.iterdir() if path.suffix in (*FILES, CHECKPOINT)} - {*checkpoints(folder)}
    files = sorted(path.name for path in models)
    return f"Name files in it: {', '.join(files)}." if files else "Name the run, or a model's file in it."
