"""Which runs have to be trained first: pruning needs trained weights, and so does a teacher; nothing later does.

So a run goes on without them: where they were deleted to save space, or left behind on another machine.
"""

from collections.abc import Sequence
from pathlib import Path

from otprune.errors import TrainingError
from otprune.experiments.experiment import Experiment
from otprune.experiments.folder import FINETUNED, PRUNED, SPARSE
from otprune.experiments.pipeline import Pipeline
from otprune.training import distributed
from otprune.training.checkpoint import checkpoints

TRAIN = "train"  # the folder of its checkpoints


def untrained(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """All but those that go on from a pruned model.

    >>> untrained([])
    []
    """
    going_on = distributed.led(lambda: [goes_on_from_pruned(one.folder, one.experiment) for one in pipelines])
    return [pipeline for pipeline, goes_on in zip(pipelines, going_on, strict=True) if not goes_on]


def goes_on_from_pruned(folder: Path, experiment: Experiment) -> bool:
    """Whether nothing that a run still has to do needs trained weights, there or not.

    >>> goes_on_from_pruned(Path("nowhere"), Experiment("vgg14", "cifar10"))
    False
    """
    is_to_be_taught = experiment.finetuning.distill and not (folder / FINETUNED).exists()
    return (folder / PRUNED).exists() and not is_to_be_taught


def require_the_same_weights(folder: Path) -> None:
    """Refuse to train anew where something was made of weights that are gone: others would be put beside it.

    >>> require_the_same_weights(Path("nowhere"))
    """
    if (folder / PRUNED).exists() and not checkpoints(folder / TRAIN):
        raise TrainingError(
            f"{folder}: {PRUNED} was made of trained weights that are gone, and another training may come to others. "
            f"Put {SPARSE} back, or use another folder."
        )
