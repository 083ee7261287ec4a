"""What the plan of an experiment keeps to, for the model that it is made of."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from otprune.channels.trace import trace
from otprune.experiments.experiment import Bounds, Experiment
from otprune.ista import untied


def bounds_for(
    experiment: Experiment, model: nn.Module, example: Any, results: Mapping[str, Any] | None = None
) -> Bounds:
    """The bounds that the settings ask for; batch norms without a penalty are left alone, since theirs do not part.

    `results` are those of a run that is pruned again as it was.

    >>> import torch
    >>> from otprune.models import digits_net
    >>> from otprune.training.run import Training
    >>> inside = Experiment("digits_net", "digits", training=Training(penalized="untied"))
    >>> bounds_for(inside, digits_net(), torch.zeros(1, 1, 8, 8))["ignore"][:2]
    ['bn', 'blocks.0.bn2']
    """
    bounds = experiment.pruning.bounds_of(results or {})
    if experiment.training.penalized == "untied":
        alone = untied(model, example)
        bounds["ignore"] = [name for name in trace(model, example).batch_norms if name not in alone]
    return bounds
