"""What is missing as jobs, each with folders of its own, which several processes can do at the same time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from otprune.experiments.reproduce.needed import Kind, Needed, once_each
from otprune.experiments.reproduce.records import SCRATCH_LACKS, Records
from otprune.experiments.reproduce.running import of_a_free_seed
from otprune.experiments.reproduce.trainings import goes_on_by_itself, warmed_up_at
from otprune.experiments.reproduce.workshop import Workshop


@dataclass
class Job:
    """Records to make, one after the other; `sharing` are those of other jobs, which wait for what is trained here.

    >>> Job("cifar10/vgg14/lam1e-4-seed0").after
    ''
    """

    name: str
    needs: list[Needed] = field(default_factory=list)
    sharing: list[Needed] = field(default_factory=list)
    after: str = ""


def jobs(needs: Iterable[Needed], workshop: Workshop, scratch: bool = True) -> list[Job]:
    """What is missing, in the order of the needs; a training comes right before all that is made of it.

    >>> import torch
    >>> from pathlib import Path
    >>> from otprune.experiments.reproduce.needed import pruned
    >>> asked = [pruned("cifar10", "vgg14", 1e-4), pruned("cifar10", "vgg14", 1e-4, ratio=0.5)]
    >>> [(job.name, job.after) for job in jobs(asked, Workshop(Path("runs"), Path("new"), torch.device("cpu")))]
    [('cifar10/vgg14/lam1e-4-seed0', ''), ('cifar10/vgg14/ns0.5-lam1e-4-seed0', 'cifar10/vgg14/lam1e-4-seed0')]
    """
    records = Records(workshop.results)
    missing = [of_a_free_seed(needed, records) for needed in records.lacking(needs, scratch)]
    groups: dict[str, list[Needed]] = {}
    for needed in once_each(missing):
        groups.setdefault(_trained_first_at(needed), []).append(needed)
    return [job for place, group in groups.items() for job in _of_one_training(place, group, records, workshop)]


def _of_one_training(place: str, group: Sequence[Needed], records: Records, workshop: Workshop) -> list[Job]:
    first, others = Job(place), list[Job]()
    for needed in group:
        if needed.begins_at == needed.trained_at:
            first.needs.append(needed)
            continue
        others.append(Job(needed.place, [needed]))
        if records.lacks(needed) != SCRATCH_LACKS and not goes_on_by_itself(needed, workshop):
            first.sharing.append(needed)
            others[-1].after = place
    return [first, *others] if first.needs or first.sharing else others


def _trained_first_at(needed: Needed) -> str:
    return warmed_up_at(needed) if needed.kind is Kind.ISTA else needed.trained_at
