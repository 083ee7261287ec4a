"""A run's network made again: as it was trained where the weights are kept, else with nothing but its γ."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

import otprune as ot
from otprune import models
from otprune.errors import TrainingError
from otprune.models.building import build_model
from otprune.report.html.subjects import Subject
from otprune.training.data.seeds import seeded


def network(subject: Subject) -> tuple[nn.Module, Tensor]:
    """The model before it was pruned, and an input of it.

    Without the weights only its γ are those of the run. What goes of a layer follows from these, and costs follow from
    what goes, so thresholds, channels and costs are right all the same.

    >>> from pathlib import Path
    >>> from otprune.experiments.experiment import Experiment
    >>> recorded = {"gammas": {"bn": [0.5] * 32}}
    >>> model, example = network(Subject("run", Path("run"), Experiment("digits_net", "digits"), recorded))
    >>> example.shape
    torch.Size([1, 1, 8, 8])
    """
    if subject.weights is None and not subject.gammas:
        raise TrainingError(f"{subject.place}: has neither weights nor scaling factors")
    with seeded(subject.experiment.training.seed):
        model = build_model(subject.experiment.model, subject.classes, subject.place)
    if subject.weights is not None:
        model = ot.load(model, subject.weights)
    else:
        _put_in(model, subject.gammas, subject)
    return model, torch.zeros(1, *_image_shape(subject))


def _put_in(model: nn.Module, gammas: Mapping[str, Sequence[float]], subject: Subject) -> None:
    for name, values in gammas.items():
        try:
            gamma = model.get_submodule(name).get_parameter("weight")
            gamma.data.copy_(torch.tensor(values))
        except (AttributeError, RuntimeError) as error:
            raise TrainingError(
                f"{subject.place}: {subject.experiment.model} has no batch norm {name} with {len(values)} channels"
            ) from error


def _image_shape(subject: Subject) -> Sequence[int]:
    if "image_shape" in subject.fed:
        shape: Sequence[int] = subject.fed["image_shape"]
        return shape
    if subject.experiment.model in models.names():
        return models.image_shape(subject.experiment.model)
    raise TrainingError(f"{subject.place}: does not say what images its model takes")
