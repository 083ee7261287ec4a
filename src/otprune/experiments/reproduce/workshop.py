"""Where runs are made and records go, and what all of them share: data, a device, and who is told of trainings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from otprune.experiments import stages
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import write_json
from otprune.experiments.pipeline import Pipeline, open_data
from otprune.experiments.reporting import Report
from otprune.training.data import AnyDataset, Progress

Say = Callable[[str], None]


@dataclass
class Workshop:
    """Where runs are made and records go; the data of all of them is opened once.

    >>> Workshop(Path("runs"), Path("results"), torch.device("cpu")).together
    4
    """

    runs: Path
    results: Path
    device: torch.device
    report: Report | None = None
    together: int = stages.TOGETHER
    downloading: Progress | None = None
    say: Say = print
    opened: dict[str, AnyDataset] = field(default_factory=dict)

    def pipeline(self, place: str, experiment: Experiment, start: Path | None = None) -> Pipeline:
        """The pipeline of an experiment in its folder."""
        return Pipeline(experiment, self.runs / place, self.data(experiment.data), self.device, start)

    def data(self, name: str) -> AnyDataset:
        """The data of that name."""
        if name not in self.opened:
            self.opened[name] = open_data(name, self.downloading)
        return self.opened[name]

    def keep(self, place: str, record: Mapping[str, Any]) -> None:
        """Put a finished record where records are kept."""
        path = self.results / f"{place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
        self.say(f"recorded {path}")
