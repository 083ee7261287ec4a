"""What an experiment is: a model, data, how to train, prune and fine-tune. Pure data, written into the run's folder."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otprune.errors import TrainingError
from otprune.files import write_atomically
from otprune.training.run import Training

CONFIGURATION = "config.json"
AS_THEY_ARE = frozenset({"digits"})  # mirrored, they are digits no more, and four pixels aside is half of such an image


@dataclass(frozen=True)
class Experiment:
    """One run of the whole pipeline; the defaults are the paper's for CIFAR.

    >>> Experiment("vgg14", "cifar10").finetuning().lam
    0.0
    """

    model: str
    data: str
    training: Training = field(default_factory=Training)
    delta: float = 1e-3
    calibration_images: int = 10_000
    finetune_epochs: int = 40
    finetune_rate: float = 1e-3
    report_after: tuple[int, ...] = (1, 3)

    def finetuning(self) -> Training:
        """Fine-tuning: a small constant learning rate and no penalty, everything else as in training."""
        return dataclasses.replace(
            self.training, epochs=self.finetune_epochs, rate=self.finetune_rate, decay_at=(), lam=0.0
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it.

        >>> Experiment("vgg14", "cifar10").to_dict()["training"]["epochs"]
        160
        """
        fields: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return fields


def augmented(data: str) -> bool:
    """Whether images of that data are cropped and mirrored for training.

    >>> augmented("cifar10"), augmented("digits")
    (True, False)
    """
    return data not in AS_THEY_ARE


def claim_folder(folder: Path, experiment: Experiment) -> None:
    """Write the configuration into the run's folder, or check that the folder belongs to this experiment.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claim_folder(Path(folder), Experiment("vgg14", "cifar10"))
    ...     claim_folder(Path(folder), Experiment("vgg14", "cifar100"))
    Traceback (most recent call last):
        ...
    otprune.errors.TrainingError: ...: the folder belongs to a run with data=cifar10, not cifar100. Use another ...
    """
    path = folder / CONFIGURATION
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(experiment.to_dict(), indent=2) + "\n").encode())
        return
    found = _flat(json.loads(path.read_text(encoding="utf-8")))
    for key, value in _flat(experiment.to_dict()).items():
        if found.get(key) != value:
            raise TrainingError(
                f"{path}: the folder belongs to a run with {key}={found.get(key)}, not {value}. "
                f"Use another folder, or the same settings to go on with it."
            )


def _flat(configuration: dict[str, Any]) -> dict[str, Any]:
    """The training's settings beside the others, so that an error names the one that differs."""
    training: dict[str, Any] = configuration["training"]
    return configuration | training | {"training": None}
