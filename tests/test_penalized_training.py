"""A training can leave out the batch norms that sums tie to others: their γ move as without a penalty."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import otprune as ot
from otprune.errors import TrainingError
from otprune.experiments import stages
from otprune.experiments.experiment import Experiment, Pruning
from otprune.experiments.explained import MEANINGS
from otprune.experiments.folder import SPARSE
from otprune.experiments.pipeline import Pipeline
from otprune.ista import untied
from otprune.models import digits_net
from otprune.training.data.seeds import seeded
from otprune.training.loop import train
from otprune.training.run import Run, Training
from tests.processes import DIGITS

EXAMPLE = torch.zeros(1, 1, 8, 8)


def trained(training: Training) -> dict[str, Tensor]:
    """γ by layer after one step, too short for the penalty to have reached other layers through the loss."""
    with seeded(0):
        model = digits_net()
    run = Run(model, DIGITS, training)
    run.begin_epoch()
    run.advance()
    return {name: m.weight.detach() for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}


@pytest.mark.parametrize("proximal", [False, True])
def test_only_untied_layers_are_penalized_where_that_is_asked_for(proximal: bool) -> None:
    plain = trained(Training(lam=0.0, augment=False))
    everywhere = trained(Training(lam=0.5, augment=False, proximal=proximal))
    inside = trained(Training(lam=0.5, augment=False, proximal=proximal, penalized="untied"))
    alone = set(untied(digits_net(), EXAMPLE))
    assert alone and alone < plain.keys()
    assert not any(torch.equal(everywhere[name], gamma) for name, gamma in plain.items())
    assert {name for name, gamma in plain.items() if not torch.equal(inside[name], gamma)} == alone
    assert all(torch.equal(inside[name], everywhere[name]) for name in alone)


class AllTied(nn.Module):
    """Every batch norm writes into one sum."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(1, 4, 3) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))
        self.fc = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        both = [norm(conv(images)) for conv, norm in zip(self.convs, self.norms, strict=True)]
        scores: Tensor = self.fc((both[0] + both[1]).relu().mean((2, 3)))
        return scores


def test_a_model_without_untied_layers_is_refused_before_it_is_trained() -> None:
    with pytest.raises(
        TrainingError, match="penalized must be all, not untied: this model has no batch norm that a sum"
    ):
        Run(AllTied(), DIGITS, Training(penalized="untied", augment=False))
    train(Run(AllTied(), DIGITS, Training(epochs=1, augment=False)))


def test_layers_without_a_penalty_are_not_pruned(tmp_path: Path) -> None:
    """Whatever their γ are, they were not driven apart."""
    experiment = Experiment("digits_net", "digits", training=Training(epochs=1, augment=False, penalized="untied"))
    pipeline = Pipeline(experiment, tmp_path, DIGITS, torch.device("cpu"))
    model = pipeline.fresh_model()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.weight.data[1:4] = 1e-6
    ot.save(model, tmp_path / SPARSE)
    stages.prune(pipeline)
    layers = {layer["name"]: layer for layer in pipeline.results["layers"]}
    inside = set(untied(digits_net(), EXAMPLE))
    assert inside and {name for name, layer in layers.items() if layer["kept"] < layer["channels"]} == inside
    assert all(layers[name]["kept"] == layers[name]["channels"] - 3 for name in inside)
    (told,) = (line for line in pipeline.results["remarks"] if "neither penalized nor pruned" in line)
    assert told.startswith(f"{len(layers) - len(inside)} of {len(layers)} batch norms") and "blocks.0.bn2" in told
    assert experiment.finetune_training().penalized == experiment.scratch_training(2, 1).penalized == "all"


def test_a_ratio_is_a_share_of_the_layers_with_a_penalty_as_its_help_says(tmp_path: Path) -> None:
    training, pruning = Training(augment=False, penalized="untied"), Pruning(rule="ns", ratio=0.25)
    experiment = Experiment("digits_net", "digits", training=training, pruning=pruning)
    pipeline = Pipeline(experiment, tmp_path, DIGITS, torch.device("cpu"))
    model = pipeline.fresh_model()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.1, 1.0)
    ot.save(model, tmp_path / SPARSE)
    stages.prune(pipeline)
    inside = [layer for layer in pipeline.results["layers"] if layer["name"] in untied(digits_net(), EXAMPLE)]
    assert sum(layer["negligible"] for layer in inside) == sum(layer["channels"] for layer in inside) // 4
    assert "or of the untied ones with --penalized untied" in MEANINGS["pruning.ratio"]


def test_a_budget_that_the_penalty_is_steered_to_is_that_of_all_layers() -> None:
    with pytest.raises(TrainingError, match="penalized must be all where a target for FLOPs steers λ"):
        Training(penalized="untied", target_flops=0.5)


def test_other_names_are_refused() -> None:
    with pytest.raises(TrainingError, match="penalized must be one of all, untied, not tied"):
        Training(penalized="tied")  # type: ignore[arg-type]
