"""What each stage of a run ran on: a run can move from one machine to another, between its stages and inside of one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from otprune.experiments.contents import well_formed
from otprune.experiments.folder import read_json, write_json
from otprune.provenance import provenance
from otprune.training import distributed
from otprune.training.determinism import described

FILE = "provenance.json"
ALONE, APART = "provenance", "provenance_by_stage"
SCRATCH = "provenance_scratch"  # in a record that a training from scratch was added to

Provenances = dict[str, list[dict[str, Any]]]
"""For each stage, in the order in which they last ran, the versions and hardware that it ran on, the last one last."""


def noted(folder: Path) -> Provenances:
    """What the stages in a run's folder ran on, as far as it was noted.

    >>> noted(Path("nowhere"))
    {}
    """
    path = folder / FILE
    return well_formed(Provenances, read_json(path), path) if path.exists() else {}


def note(folder: Path, stage: str, device: torch.device, anew: bool) -> None:
    """Note what a stage runs on from now on, beside what it ran on before, unless it begins anew.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     note(Path(folder), "train", torch.device("cpu"), anew=True)
    ...     note(Path(folder), "train", torch.device("cpu"), anew=False)
    ...     len(noted(Path(folder))["train"])
    1
    """
    if not distributed.leads():
        return
    found, now = noted(folder), provenance(device) | described() | _processes()
    before = [] if anew else found.get(stage, [])
    others = {name: those for name, those in found.items() if name != stage}
    write_json(folder / FILE, others | {stage: [*(one for one in before if one != now), now]})


def _processes() -> dict[str, int]:
    """How many train together, where it is more than one."""
    together = distributed.share().of
    return {"processes": together} if together > 1 else {}


def hand_on(stage: str, source: Path, folder: Path) -> None:
    """Note in another folder what a stage ran on whose file is copied there."""
    if stage in noted(source):
        write_json(folder / FILE, noted(folder) | {stage: noted(source)[stage]})


def forget(folder: Path, stages: Sequence[str]) -> None:
    """Take back what stages ran on whose results are left out.

    >>> forget(Path("nowhere"), [])
    """
    found = noted(folder)
    if found.keys() & set(stages):
        write_json(folder / FILE, {name: those for name, those in found.items() if name not in stages})


def attributed(folder: Path, device: torch.device) -> dict[str, Any]:
    """What a record says of versions and hardware: those of the last stage, and of each apart where they differ.

    >>> sorted(attributed(Path("nowhere"), torch.device("cpu")))
    ['provenance']
    """
    found = noted(folder)
    all_of_them = [one for those in found.values() for one in those]
    if not all_of_them:
        return {ALONE: provenance(device)}
    last = all_of_them[-1]
    return {ALONE: last} if all(one == last for one in all_of_them) else {ALONE: last, APART: found}


def attribution(record: Mapping[str, Any]) -> dict[str, Any]:
    """That part of a record.

    >>> attribution({"results": {}, "provenance": {"cpu": "a processor"}})
    {'provenance': {'cpu': 'a processor'}}
    """
    return {name: record[name] for name in (ALONE, APART) if name in record}
