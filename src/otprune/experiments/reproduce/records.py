"""The records under results/, in the shape of today, whatever the shape they were written in."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments import contents
from otprune.experiments.attribution import ALONE, APART, SCRATCH
from otprune.experiments.contents import ACCURACY, require_well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.fields import flat
from otprune.experiments.iterate import ROUNDS, are_missing, are_trained
from otprune.experiments.reproduce.needed import Kind, Needed
from otprune.jsons import parsed
from otprune.reading import text_of

# Until pruning and fine-tuning had sections of their own, their settings lay beside those of the experiment.
MOVED = {
    "delta": ("pruning", "delta"),
    "calibration_images": ("pruning", "calibration_images"),
    "finetune_epochs": ("finetuning", "epochs"),
    "finetune_rate": ("finetuning", "rate"),
    "report_after": ("finetuning", "report_after"),
}
SCRATCH_LACKS = "not trained from scratch"
ROUNDS_LACK = f"with fewer than {ROUNDS} rounds"
WAY_OUT = "Get it back from version control, or remove it: it then counts as not run."
CHOOSING = "choosing"
OF_A_SHIFT = ("accuracy_pruned", "accuracy_recalibrated", "accuracy_finetuned")
CONTENT = {
    Kind.BASELINE: "results",
    Kind.PRUNED: "results",
    Kind.ISTA: "results",
    Kind.SHIFTED: "shifts",
    Kind.ROUNDS: "rounds",
}


@dataclass(frozen=True)
class Record:
    """What is kept of a run: its place below results/, its experiment, and all that the file has."""

    place: str
    experiment: Experiment
    content: Mapping[str, Any]

    @property
    def results(self) -> Mapping[str, Any]:
        """What was measured; nothing in records of several prunings, which have `rounds` or `shifts` instead."""
        found: Mapping[str, Any] = self.content.get("results", {})
        return found

    @property
    def gammas(self) -> Mapping[str, list[float]]:
        """The scaling factors that the thresholds were found in; nothing in older records."""
        found: Mapping[str, list[float]] = self.results.get("gammas") or self.content.get("gammas") or {}
        return found

    @property
    def provenances(self) -> list[Mapping[str, Any]]:
        """All versions and hardware that measured: of every stage of every pruning. There may be equal ones."""
        parts = self.content.get("rounds") or self.content.get("shifts") or [self.content]
        stages = [those for part in parts for those in part.get(APART, {}).values()]
        later = [part[SCRATCH] for part in parts if SCRATCH in part]
        return [part[ALONE] for part in parts] + [one for those in stages for one in those] + later


def normalised(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a record as they are written today.

    >>> normalised({"model": "vgg14", "data": "cifar10", "finetune_epochs": 40})
    {'model': 'vgg14', 'data': 'cifar10', 'finetuning': {'epochs': 40}}
    """
    fields = {name: value for name, value in experiment.items() if name not in MOVED}
    for name, (section, moved) in MOVED.items():
        if name in experiment and isinstance(fields.get(section, {}), dict):
            fields[section] = {**fields.get(section, {}), moved: experiment[name]}
    return fields


class Records:
    """The records below a folder, by place. Each is read when it is asked for, so a damaged one costs others nothing.

    >>> Records(Path("nowhere")).all
    {}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, Record | None] = {}

    @cached_property
    def all(self) -> dict[str, Record]:
        """Every record of a run, by place: those in folders of a data set and a model."""
        everything = self.folder.glob("*/*/*.json")
        return self._found(path for path in everything if self.folder / CHOOSING not in path.parents)

    @cached_property
    def choosing(self) -> dict[str, Record]:
        """Every record of a run by which settings were chosen, by place: all below a folder of their own."""
        return self._found((self.folder / CHOOSING).rglob("*.json"))

    def at(self, place: str) -> Record | None:
        """The record in a place, if there is one; a file there that is none, or that lost something, is refused.

        >>> Records(Path("nowhere")).at("cifar10/vgg14/lam1e-4-seed0")
        """
        path = self.folder / f"{place}.json"
        if not path.exists():
            return None
        record = self._read(path)
        if record is None:
            raise TrainingError(f"{path}: is no record of a run: it has no experiment. {WAY_OUT}")
        _require_whole(record, path)
        return record

    def find(self, needed: Needed) -> Record | None:
        """The record that is needed, if there is one; one of another experiment in its place is refused."""
        record = self.at(needed.place)
        if record is not None:
            _require_same(record, needed, self.folder)
        return record

    def with_gammas(self, needed: Needed) -> Record | None:
        """A record of the training that is needed, of whatever seed, that has its scaling factors.

        Thresholds are shifted in the same ones. One that is damaged matters only where no other has them.
        """
        refused: list[TrainingError] = []
        for place in (*self._of_all_seeds(needed), *self._of_all_seeds(replace(needed, kind=Kind.SHIFTED))):
            try:
                record = self.at(place)
            except TrainingError as error:
                refused.append(error)
                continue
            if record and record.gammas and _differ_in_seed_alone(record.experiment, needed.experiment):
                return record
        if refused:
            raise refused[0]
        return None

    def lacks(self, needed: Needed) -> str:
        """What is missing of a record, in a few words; nothing where all is there."""
        if needed.gammas:
            if self.with_gammas(needed):
                return ""
            return "γ not recorded" if self.find(needed) or self.of_any_seed(needed) else "not run"
        record = self.find(needed)
        if record is None:
            return "not run"
        if needed.kind is Kind.ROUNDS:
            return ROUNDS_LACK if are_missing(record.content) else "" if are_trained(record.content) else "not trained"
        pruned = needed.kind in (Kind.PRUNED, Kind.ISTA)
        if pruned and needed.finetuned and "accuracy_finetuned" not in record.results:
            return "not fine-tuned"
        return SCRATCH_LACKS if needed.scratch and "accuracy_scratch" not in record.results else ""

    def lacking(self, needs: Iterable[Needed], scratch: bool = True) -> list[Needed]:
        """Those of which something is missing; without `scratch`, training from scratch does not count."""
        enough = ("",) if scratch else ("", SCRATCH_LACKS)
        return [needed for needed in needs if self.lacks(needed) not in enough]

    def of_any_seed(self, needed: Needed) -> list[Record]:
        """The records of the needed training and pruning, whatever the seed, which is what their places end with."""
        found = map(self.at, self._of_all_seeds(needed))
        return [record for record in found if record and _differ_in_seed_alone(record.experiment, needed.experiment)]

    def place_of(self, path: Path) -> str:
        """Where a file lies below the folder.

        >>> Records(Path("results")).place_of(Path("results/cifar10/vgg14/lam1e-4-seed0.json"))
        'cifar10/vgg14/lam1e-4-seed0'
        """
        return path.relative_to(self.folder).with_suffix("").as_posix()

    def _of_all_seeds(self, needed: Needed) -> list[str]:
        """The places of all seeds that there are files of."""
        stem, _, _ = needed.place.rpartition("-seed")
        names = (path.stem for path in self.folder.glob(f"{escape(stem)}-seed*.json"))
        seeds = sorted(seed for name in names if (seed := name.rpartition("-seed")[2]).isdecimal())
        return [f"{stem}-seed{seed}" for seed in seeds]

    def _found(self, paths: Iterable[Path]) -> dict[str, Record]:
        found = map(self._read, sorted(paths))
        return {record.place: record for record in found if record is not None}

    def _read(self, path: Path) -> Record | None:
        """What is in a file, which is read once; one of something else than a run, a latency say, is none of ours."""
        if path not in self._known:
            try:
                self._known[path] = _record(path, self.place_of(path))
            except (ValueError, OtpruneError) as error:
                raise TrainingError(f"{path}: is no record of a run: {error}. {WAY_OUT}") from error
        return self._known[path]


def _record(path: Path, place: str) -> Record | None:
    """A `ValueError`, or one of otprune, tells what is wrong with it."""
    content = _json(text_of(path))
    experiment = content.get("experiment") if isinstance(content, dict) else None
    if not isinstance(experiment, dict) or "training" not in experiment:
        return None
    require_well_formed(contents.Record, content)
    return Record(place, Experiment.from_dict(normalised(experiment), "its experiment"), content)


def _json(text: str) -> Any:
    try:
        return parsed(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error


def _require_whole(record: Record, path: Path) -> None:
    """Older records lack this and that, which is left out. No run ever wrote one without what its networks cost."""
    lost = [*_lost_results(record), *_lost_prunings(record.content)]
    if lost:
        raise TrainingError(f"{path}: has lost its {' and '.join(lost)}. {WAY_OUT}")


def _lost_results(record: Record) -> Iterator[str]:
    if "results" not in record.content:
        return
    costs = ("cost_before", "cost_after") if record.experiment.training.lam else ("cost_before",)
    yield from (name for name in costs if name not in record.results)
    yield from (name for name, value in record.results.items() if name.startswith(ACCURACY) and value is None)


def _lost_prunings(content: Mapping[str, Any]) -> Iterator[str]:
    """What is compared with all others must be there: the first round, thresholds as they are, the unpruned network."""
    if content.get("rounds") == []:
        yield "rounds"
    if "shifts" in content:
        if all(one["shift"] for one in content["shifts"]):
            yield "shift of 0"
        if "accuracy_sparse" not in content:
            yield "accuracy_sparse"
        yield from (name for name in OF_A_SHIFT if any(one.get(name) is None for one in content["shifts"]))


def _differ_in_seed_alone(one: Experiment, other: Experiment) -> bool:
    return replace(one, training=replace(one.training, seed=other.training.seed)) == other


def _require_same(record: Record, needed: Needed, folder: Path) -> None:
    where = folder / f"{record.place}.json"
    found, asked = flat(record.experiment.to_dict()), flat(needed.experiment.to_dict())
    if needed.restart is not None:
        found["restart"], asked["restart"] = record.content.get("restart"), needed.restart
    for name, value in asked.items():
        if found[name] != value:
            raise TrainingError(f"{where}: has {name}={found[name]}, and the run asked for {value}. Move it elsewhere.")
    if CONTENT[needed.kind] not in record.content:
        raise TrainingError(f"{where}: has no {CONTENT[needed.kind]}. Move it elsewhere.")
