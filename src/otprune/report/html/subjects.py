"""What a report is about: runs by their folders, or by the records that are kept of them."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from otprune.errors import OtpruneError, TrainingError
from otprune.experiments.claiming import runs_in, some
from otprune.experiments.contents import Content, Feeding, Record, well_formed
from otprune.experiments.experiment import Experiment
from otprune.experiments.feeding import DATA
from otprune.experiments.folder import CONFIGURATION, RECORD, SPARSE, read_json
from otprune.experiments.reproduce.records import normalised
from otprune.experiments.run_facts import as_far_as_known, configuration
from otprune.experiments.thresholds import FOLDER as CHECK
from otprune.report.points import CLASSES

NO_WEIGHTS = "Read from a record, which has no weights: the network was built again with the scaling factors recorded."


@dataclass(frozen=True)
class Subject:
    """A run: its settings, what was measured, how its models are fed, and its trained weights where they are kept.

    `check` is what was measured at shifted thresholds; it has no `shifts` where nothing was.

    >>> Subject("run", Path("run"), Experiment("vgg14", "cifar10"), {}).classes
    10
    """

    name: str
    place: Path
    experiment: Experiment
    results: Mapping[str, Any]
    fed: Mapping[str, Any] = field(default_factory=dict)
    check: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None

    @property
    def gammas(self) -> Mapping[str, list[float]]:
        """The scaling factors by layer, as they were recorded; nothing where they were not."""
        found: Mapping[str, list[float]] = self.results.get("gammas") or self.check.get("gammas") or {}
        return found

    @property
    def classes(self) -> int:
        """How many classes its data has."""
        if "classes" in self.fed:
            return len(self.fed["classes"])
        if self.experiment.data in CLASSES:  # older records do not say what the classes of their data are
            return CLASSES[self.experiment.data]
        raise TrainingError(f"{self.place}: does not say how many classes its data has")


def subjects(places: Sequence[Path]) -> list[Subject]:
    """What is at each place, under names that tell them apart; a place that is given twice is taken once.

    >>> subjects([Path("nowhere")])
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: nowhere: there is no such folder or file. Give the folder of a run, or a record ...
    """
    different: dict[str, Path] = {}
    for place in places:
        different.setdefault(os.path.realpath(place), place)
    found = [_of_folder(place) if place.is_dir() else _of_record(place) for place in different.values()]
    if not found:
        raise OtpruneError("a report is about runs: give at least one")
    return _told_apart(found)


def _of_folder(folder: Path) -> Subject:
    experiment = configuration(folder)
    if experiment is None:
        raise TrainingError(f"{folder}: holds no run, whose settings are in {CONFIGURATION}. {_inside(folder)}")
    return Subject(
        name=folder.resolve().name,
        place=folder,
        experiment=experiment,
        results=as_far_as_known(folder),
        fed=_where_there(Feeding, folder / DATA),
        check=_where_there(Record, folder / CHECK / RECORD),
        weights=folder / SPARSE if (folder / SPARSE).exists() else None,
    )


def _inside(folder: Path) -> str:
    runs = runs_in(folder)
    return f"Give some of those in it: {some(runs)}." if runs else "Give the folder of a run, or its record."


def _of_record(path: Path) -> Subject:
    if not path.exists():
        raise TrainingError(f"{path}: there is no such folder or file. Give the folder of a run, or a record of one.")
    content = read_json(path)
    if "rounds" in content:
        raise TrainingError(
            f"{path}: is a record of several rounds. Leave it out, or give the folders of rounds, round-1 …."
        )
    if not isinstance(content.get("experiment"), dict) or not content.keys() & {"results", "shifts"}:
        raise TrainingError(f"{path}: is not the record of one run. Give the folder of a run, or a record of one.")
    well_formed(Record, content, path)
    return Subject(
        name=path.stem,
        place=path,
        experiment=Experiment.from_dict(normalised(content["experiment"]), str(path)),
        results=content.get("results", {}),
        fed=content.get("data", {}),
        check=content if "shifts" in content else {},
    )


def _where_there(kind: type[Content], path: Path) -> Mapping[str, Any]:
    return well_formed(kind, read_json(path), path) if path.exists() else {}


def _told_apart(found: Sequence[Subject]) -> list[Subject]:
    """Runs of one name are called by their folder too, and after that by their number."""
    names = Counter(subject.name for subject in found)
    wider = [
        subject.name if names[subject.name] == 1 else f"{subject.place.resolve().parent.name}/{subject.name}"
        for subject in found
    ]
    return [
        replace(subject, name=name if wider.count(name) == 1 else f"{name} ({number})")
        for number, (subject, name) in enumerate(zip(found, wider, strict=True), 1)
    ]
