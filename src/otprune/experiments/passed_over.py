"""Settings that would be passed over because of another one: refused, so that nobody takes them for heard."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otprune.errors import TrainingError
from otprune.experiments.experiment import OF_LATENCY, Experiment
from otprune.experiments.fields import Flat, checked, flag, flat, kinds


@dataclass(frozen=True)
class PassedOver:
    """A setting without an effect, why that is, and the other setting, and its value, with which it would have one.

    Or it has one that goes `against` the other setting, so that a flag does not overrule what a file says of it.

    >>> PassedOver("pruning.ratio", "to the rule ot", "pruning.rule", "ns").told("give --rule ns")
    'pruning.ratio is of no use to the rule ot: give --rule ns, or leave it out'
    """

    name: str
    why: str
    other: str
    value: str = ""
    against: bool = False

    def told(self, advice: str) -> str:
        """In words."""
        return f"{self.name} is of no use {self.why}: {advice}, or leave it out"

    @property
    def as_flag(self) -> str:
        """What to give on the command line."""
        return f"give {flag(self.other)} {self.value}".rstrip()

    @property
    def as_setting(self) -> str:
        """What to write into a file."""
        return f"set {self.other} to {self.value}" if self.value else f"set {self.other}"


def passed_over(settings: Flat) -> Iterator[PassedOver]:
    """All settings that have no effect beside the others.

    >>> [one.name for one in passed_over(flat(Experiment("vgg14", "cifar10").to_dict()))][:2]
    ['pruning.ratio', 'pruning.latency_runtime']
    """
    if settings["pruning.rule"] == "ot":
        yield PassedOver("pruning.ratio", "to the rule ot", "pruning.rule", "ns")
    else:
        yield PassedOver("pruning.delta", "to the rule ns", "pruning.rule", "ot")
        steered = "to the rule ns, since λ is steered by what OT keeps"
        yield PassedOver("training.target_flops", steered, "pruning.rule", "ot", against=True)
    if settings["pruning.latency"] is None:
        yield from (
            PassedOver(f"pruning.{name}", "without a latency to meet", "pruning.latency") for name in OF_LATENCY
        )
    if settings["training.schedule"] == "cosine":
        yield PassedOver("training.decay_at", "to a rate that falls along a cosine", "training.schedule", "steps")
    if not settings["finetuning.distill"]:
        yield PassedOver("finetuning.temperature", "without distillation", "finetuning.distill")
    yield from _of_fine_tuning(settings["finetuning.epochs"], settings["finetuning.report_after"])


def _of_fine_tuning(epochs: int, report_after: Collection[int]) -> Iterator[PassedOver]:
    own = "finetuning.epochs"
    if not epochs:
        others = (name for name in kinds(Experiment) if name.startswith("finetuning.") and name != own)
        yield from (PassedOver(name, "without fine-tuning", own) for name in others)
    elif report_after and max(report_after) > epochs:
        yield PassedOver("finetuning.report_after", "past the last epoch", own, str(max(report_after)))


def require_flags_of_use(flags: Mapping[str, Any], found: Iterable[PassedOver]) -> None:
    """Refuse a flag that was given, asks for something, and is passed over.

    >>> require_flags_of_use({"pruning.ratio": 0.3}, passed_over(flat(Experiment("vgg14", "cifar10").to_dict())))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: pruning.ratio is of no use to the rule ot: give --rule ns, or leave it out
    """
    for one in found:
        if flags.get(one.name):
            raise TrainingError(one.told(one.as_flag))


def require_file_of_use(file: Flat, where: str, experiment: Experiment) -> None:
    """Refuse what a file sets and is passed over by the file's own doing.

    What a flag or a run's folder overrules is not the file's fault, and a default may be written anywhere.

    >>> require_file_of_use({"training.schedule": "cosine", "training.decay_at": (0.3,)}, "my.toml",
    ...     Experiment.from_dict({"model": "vgg14", "data": "cifar10", "training": {"schedule": "cosine"}}))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: my.toml: training.decay_at is of no use to a rate that falls along a cosine: set ...
    """
    defaults = checked(Experiment, flat(Experiment("", "").to_dict()), where)
    alone = set(passed_over(defaults | file))
    for one in passed_over(flat(experiment.to_dict())):
        if (one in alone or one.against) and file.get(one.name, defaults[one.name]) != defaults[one.name]:
            raise TrainingError(f"{where}: {one.told(one.as_setting)}")
