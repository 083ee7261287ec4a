"""The grid of a sweep as data: networks × λ × seeds, each cell a folder and an experiment."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.claiming import require_no_rounds, require_no_run
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import Flat
from otprune.experiments.folder import FINETUNED, RECORD, RESULTS, found_in, is_whole, read_json
from otprune.experiments.run_facts import configuration
from otprune.experiments.settings import resolved

UNSAFE = re.compile(r"[^\w.+-]+")


@dataclass(frozen=True)
class Grid:
    """What a sweep goes over: λ as they were written, which names their folders, and seeds from 0.

    Without `models` the settings say which network it is.

    >>> list(Grid((), ("1e-4", "2e-4"), seeds=1).cells())
    ['lam1e-4-seed0', 'lam2e-4-seed0']
    >>> list(Grid(("vgg14", "timm:resnet18"), ("1e-4",), seeds=1).cells())
    ['vgg14-lam1e-4-seed0', 'timm-resnet18-lam1e-4-seed0']
    >>> Grid((), ("1e-4", "0.0001"), seeds=1)
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: the λ of a sweep must differ, and 1e-4 and 0.0001 are the same
    """

    models: Sequence[str]
    lams: Sequence[str]
    seeds: int

    def __post_init__(self) -> None:
        _require_different(self.lams, float, "λ")
        _require_different(self.models, str, "networks")
        _require_different(self.models, safe, "names of networks in folders")

    def cells(self) -> dict[str, Flat]:
        """The name of each cell's folder, and the settings that are its own."""
        several = len(self.models) > 1
        return {
            f"{f'{safe(model)}-' if several else ''}lam{lam}-seed{seed}": _settings(model, lam, seed)
            for model in self.models or ("",)
            for lam in self.lams
            for seed in range(self.seeds)
        }

    def folders(self, out: Path) -> dict[Path, Flat]:
        """The folder of each cell in `out`, and the settings that are its own.

        >>> [folder.name for folder in Grid((), ("1e-4",), seeds=2).folders(Path("runs"))]
        ['lam1e-4-seed0', 'lam1e-4-seed1']
        """
        return {_place(out, name, own): own for name, own in self.cells().items()}

    def experiments(
        self, out: Path, given: Flat, config: str | None = None, without: Collection[Path] = ()
    ) -> dict[Path, Experiment]:
        """The experiment of each cell, under its folder in `out`; `given` are the settings that all have in common.

        Cells whose folders are in `without` are left out.

        >>> common = {"model": "digits_net", "data": "digits"}
        >>> runs = Grid((), ("1e-4",), seeds=2).experiments(Path("runs"), common)
        >>> [(str(folder), experiment.training.seed) for folder, experiment in runs.items()]
        [('runs/lam1e-4-seed0', 0), ('runs/lam1e-4-seed1', 1)]
        """
        require_no_run(out, "a sweep")
        require_no_rounds(out, "a sweep")
        placed = self.folders(out)
        return {folder: resolved(given | placed[folder], config, folder) for folder in placed if folder not in without}


def safe(model: str) -> str:
    """The name of a network as part of a folder's name.

    >>> safe("timm:resnet18"), safe("../nets/mine.py:build")
    ('timm-resnet18', 'nets-mine.py-build')
    """
    return UNSAFE.sub("-", model).strip(".-")


def is_finished(folder: Path, experiment: Experiment) -> bool:
    """Whether the last model of a run is in its folder, and a record of the experiment with all that was measured.

    >>> is_finished(Path("nowhere"), Experiment("digits_net", "digits"))
    False
    """
    if not is_whole(folder / FINETUNED) or not all((folder / name).exists() for name in (RECORD, RESULTS)):
        return False
    record = found_in(folder / RECORD) or {}
    return (record.get("experiment"), record.get("results")) == (experiment.to_dict(), read_json(folder / RESULTS))


def _place(out: Path, name: str, own: Flat) -> Path:
    """The folder of a cell, or that which it had in a grid that had its network alone."""
    before = out / name.removeprefix(f"{safe(str(own.get('model', '')))}-")
    if (out / name).exists() or before == out / name:
        return out / name
    found = configuration(before)
    return before if found is not None and found.model == own["model"] else out / name


def _settings(model: str, lam: str, seed: int) -> Flat:
    own: Flat = {"training.lam": float(lam), "training.seed": seed}
    return own | ({"model": model} if model else {})


def _require_different(values: Sequence[str], key: Callable[[str], object], what: str) -> None:
    seen: dict[object, str] = {}
    for value in values:
        if (known := key(value)) in seen:
            raise TrainingError(f"the {what} of a sweep must differ, and {seen[known]} and {value} are the same")
        seen[known] = value
