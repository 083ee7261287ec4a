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


@dataclass(frozen=True)
class Experiment:
    """One run of the whole pipeline; the defaults are the paper's for CIFAR."""

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


def claim_folder(folder: Path, experiment: Experiment) -> None:
    """Write the configuration into the run's folder, or check that the folder belongs to this experiment."""
    path = folder / CONFIGURATION
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(experiment.to_dict(), indent=2) + "\n").encode())
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    ours = experiment.to_dict()
    differing = [key for key in ours if ours[key] != found.get(key)]
    if differing:
        key = differing[0]
        raise TrainingError(
            f"{path}: the folder belongs to a run with {key}={found.get(key)}, not {ours[key]}. "
            f"Use another folder, or the same settings to go on with it."
        )
